"""Measured cells become tidy rows, with the interval of each cell's mean beside every value."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cutaway.measure.repeats import RepeatMetrics, group_by_size, metric_interval

COORDINATES = (
    "model", "data", "kind", "layers", "pool", "classifier", "repeat", "n_train", "n_val", "n_test",
)  # fmt: skip
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("model", "data", "kind", "layers", "pool", "classifier"), pl.String),
    **dict.fromkeys(("repeat", "n_train", "n_val", "n_test"), pl.Int64),
    "metric": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
# The metric a verdict speaks of, by task.
MAIN_METRIC = {
    "binary": "accuracy",
    "multiclass": "accuracy",
    "multilabel": "f1_macro",
    "regression": "r2",
}


@dataclass(frozen=True)
class ProbeCell:
    """Where a measurement stands in the grid."""

    model: str
    data: str
    layers: str
    pool: str
    classifier: str
    kind: str = "probe"

    @property
    def key(self) -> str:
        """The cell as one line of text."""
        return "|".join((self.kind, self.layers, self.pool, self.classifier))


def cell_rows(cell: ProbeCell, measured: Sequence[RepeatMetrics]) -> list[dict[str, Any]]:
    """One row per repeat and metric; low and high are those of the cell's mean."""
    return [row for group in group_by_size(measured) for row in _rows_of_size(cell, group)]


def _rows_of_size(cell: ProbeCell, group: Sequence[RepeatMetrics]) -> Iterable[dict[str, Any]]:
    """The rows of repeats of the same training size."""
    for metric in group[0].metrics:
        interval = metric_interval([m.metrics[metric] for m in group], group, metric)
        for one in group:
            yield {
                **row_coordinates(cell, one),
                "metric": metric,
                "value": _finite_or_none(one.metrics[metric]),
                "low": _finite_or_none(interval.low),
                "high": _finite_or_none(interval.high),
                "status": "done",
                "reason": "",
            }


def failed_row(cell: ProbeCell, reason: str, metric: str) -> dict[str, Any]:
    """The row of a cell that could not be measured: no value, but the reason."""
    nothing = RepeatMetrics(repeat=0, n_train=0, n_val=0, n_test=0)
    empty = {"metric": metric, "value": None, "low": None, "high": None}
    return {**row_coordinates(cell, nothing), **empty, "status": "failed", "reason": reason}


def probe_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Tidy rows as a data frame with the promised columns, in a fixed order."""
    table = pl.DataFrame(list(rows), schema=SCHEMA, orient="row")
    return table.sort([*COORDINATES, "metric"], maintain_order=True)


def row_coordinates(cell: ProbeCell, one: RepeatMetrics) -> dict[str, Any]:
    """The columns that name a row."""
    return {
        "model": cell.model, "data": cell.data, "kind": cell.kind, "layers": cell.layers,
        "pool": cell.pool, "classifier": cell.classifier, "repeat": one.repeat,
        "n_train": one.n_train, "n_val": one.n_val, "n_test": one.n_test,
    }  # fmt: skip


def _finite_or_none(value: float) -> float | None:
    """A float, or None where there is none (JSON and SQL know no NaN)."""
    return float(value) if math.isfinite(value) else None
