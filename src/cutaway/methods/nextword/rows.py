"""The tidy table of a nextword run: one row per task, prompt, feature kind, repeat and metric.

`step` is set in the loss curves of `quad` only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from cutaway.measure.repeats import RepeatMetrics, metric_interval
from cutaway.recipe.result import Row, table

NEXTWORD_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("model", "task", "prompt", "features"), pl.String),
    **dict.fromkeys(("repeat", "n_train", "n_test", "step"), pl.Int64),
    "metric": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}


@dataclass(frozen=True)
class NextwordCell:
    """The coordinates of a measurement."""

    model: str
    task: str
    prompt: str
    features: str

    @property
    def coordinates(self) -> Row:
        """The cell as columns."""
        return asdict(self)


def score_rows(cell: NextwordCell, measured: Sequence[RepeatMetrics]) -> list[Row]:
    """One row per repeat and metric; `low` and `high` are the interval of the cell's mean."""
    rows = []
    for metric in measured[0].metrics:
        interval = metric_interval([m.metrics[metric] for m in measured], measured, metric)
        rows += [
            {
                **cell.coordinates, "repeat": one.repeat, "n_train": one.n_train,
                "n_test": one.n_test, "metric": metric, "value": one.metrics[metric],
                "low": interval.low, "high": interval.high, "status": "done", "reason": "",
            }
            for one in measured
        ]  # fmt: skip
    return rows


def failed_row(cell: NextwordCell, reason: str, metric: str) -> Row:
    """The row of a cell that couldn't be measured: no value, but the reason."""
    sizes = dict.fromkeys(("repeat", "n_train", "n_test"), 0)
    return {
        **cell.coordinates, **sizes, "metric": metric, "value": None, "low": None,
        "high": None, "status": "failed", "reason": reason,
    }  # fmt: skip


def curve_rows(
    cell: NextwordCell, curve: Iterable[Row], metrics: Iterable[str], *, n_train: int, n_test: int
) -> list[Row]:
    """One row per evaluated step and metric of a training."""
    sizes = {"repeat": 0, "n_train": n_train, "n_test": n_test}
    names = list(metrics)
    return [
        {
            **cell.coordinates, **sizes, "step": point["step"], "metric": metric,
            "value": point[metric], "status": "done", "reason": "",
        }
        for point in curve
        for metric in names
        if point.get(metric) is not None
    ]  # fmt: skip


def nextword_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows as a table with the promised columns."""
    return table(rows, NEXTWORD_SCHEMA)
