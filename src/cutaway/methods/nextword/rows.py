"""The tidy table of a nextword run: one row per task, prompt, feature kind, repeat and metric.

`step` is for the loss curves of `quad`; measurements of features have none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cutaway.measure.repeats import RepeatMetrics, metric_interval
from cutaway.recipe.table import Row, table

NEXTWORD_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("model", "task", "prompt", "features"), pl.String),
    **dict.fromkeys(("repeat", "n_train", "n_test", "step"), pl.Int64),
    "metric": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
MAIN_METRIC = "accuracy"


@dataclass(frozen=True)
class NextwordCell:
    """Where a measurement stands."""

    model: str
    task: str
    prompt: str
    features: str

    @property
    def coordinates(self) -> Row:
        """The cell as columns."""
        return {name: getattr(self, name) for name in ("model", "task", "prompt", "features")}


def score_rows(cell: NextwordCell, measured: Sequence[RepeatMetrics]) -> list[Row]:
    """One row per repeat and metric; low and high are those of the cell's mean."""
    rows = []
    for metric in measured[0].metrics:
        ends = metric_interval([m.metrics[metric] for m in measured], measured, metric)
        for one in measured:
            rows.append(
                {
                    **cell.coordinates,
                    "repeat": one.repeat,
                    "n_train": one.n_train,
                    "n_test": one.n_test,
                    "metric": metric,
                    "value": one.metrics[metric],
                    "low": ends.low,
                    "high": ends.high,
                    "status": "done",
                    "reason": "",
                }
            )
    return rows


def failed_row(cell: NextwordCell, reason: str) -> Row:
    """The row of a cell that could not be measured: no value, but the reason."""
    nothing = dict.fromkeys(("value", "low", "high"))
    counts = dict.fromkeys(("repeat", "n_train", "n_test"), 0)
    return {
        **cell.coordinates, **counts, "metric": MAIN_METRIC, **nothing,
        "status": "failed", "reason": reason,
    }  # fmt: skip


def nextword_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows as a table with the promised columns; NaN becomes null."""
    return table(rows, NEXTWORD_SCHEMA)
