"""The tidy table of a nextword run: one row per task, prompt, feature kind, repeat and metric.

`step` is set in the loss curves of `quad` only.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from cutaway.measure.repeats import (
    RepeatMetrics,
    ResamplingInfo,
    metric_interval,
    resampling_info,
)
from cutaway.recipe.result import Row, table

CELL_COLUMNS = ("model", "task", "prompt", "features")
NEXTWORD_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(CELL_COLUMNS, pl.String),
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
        # Validation scores choose; their rows are not test rows, so they have no such interval.
        bounds: dict[str, float | None] = {"low": None, "high": None}
        if not metric.endswith("_val"):
            found = metric_interval([m.metrics[metric] for m in measured], measured, metric)
            bounds = {"low": found.low, "high": found.high}
        rows += [
            {
                **cell.coordinates, "repeat": one.repeat, "n_train": one.n_train,
                "n_test": one.n_test, "metric": metric, "value": one.metrics[metric],
                **bounds, "status": "done", "reason": "",
            }
            for one in measured
        ]  # fmt: skip
    return rows


def resampling_details(
    cell: NextwordCell, measured: Sequence[RepeatMetrics], metric: str
) -> list[Row]:
    """How the repeats of a cell were drawn, JSON-ready, for the tests between cells."""
    if metric not in measured[0].metrics:
        return []
    info = asdict(resampling_info(measured, metric))
    return [{**cell.coordinates, "resampling": _json_value(info)}]


def read_resampling(details: Iterable[Mapping[str, Any]]) -> dict[NextwordCell, ResamplingInfo]:
    """What `resampling_details` wrote, by cell."""
    return {
        NextwordCell(*(one[name] for name in CELL_COLUMNS)): ResamplingInfo(
            **{name: _from_json(value) for name, value in one["resampling"].items()}
        )
        for one in details
        if "resampling" in one
    }


def _json_value(value: Any) -> Any:
    """Lists for tuples and None for NaN, which JSON doesn't have."""
    if isinstance(value, dict):
        return {name: _json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(math.nan if one is None else _from_json(one) for one in value)
    return value


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
