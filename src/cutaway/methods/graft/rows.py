"""The tidy table of a graft run: one row per measured cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from cutaway.measure.calibration import Reliability
from cutaway.measure.intervals import Interval, clip_interval, corrected_t
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.recipe.table import Row, bounds, table

GRAFT_SCHEMA = {
    "base": pl.String,
    "tuned": pl.String,
    "task": pl.String,
    "kind": pl.String,
    "sparsity": pl.Float64,
    "seed": pl.Int64,
    "data": pl.String,
    "layer": pl.Int64,
    "part": pl.String,
    "head": pl.Int64,
    "bin": pl.Int64,
    "step": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}
CELL_COLUMNS = ("kind", "sparsity", "data", "layer", "part", "head", "bin", "step", "metric")


@dataclass(frozen=True)
class GraftCoordinates:
    """The coordinates that all rows of a run share."""

    base: str
    tuned: str | None
    task: str

    def row(self, kind: str, metric: str, value: float | Interval | None, **place: Any) -> Row:
        """One cell; a bare number has no interval."""
        shared = {"base": self.base, "tuned": self.tuned, "task": self.task}
        cell = {**shared, "kind": kind, "metric": metric, **place}
        return cell | bounds(value)

    def scores(self, kind: str, scores: Mapping[str, Any], **place: Any) -> list[Row]:
        """One row per metric."""
        return [self.row(kind, name, value, **place) for name, value in scores.items()]

    def bins(self, kind: str, found: Reliability, **place: Any) -> list[Row]:
        """The reliability diagram: confidence, accuracy and answers per bin that has any."""
        return [
            self.row(kind, f"bin_{name}", float(getattr(found, name)[i]), bin=i, **place)
            for i in range(len(found.count))
            if found.count[i]
            for name in ("confidence", "accuracy", "count")
        ]


def with_seed_intervals(rows: Iterable[Row]) -> list[Row]:
    """The rows; where a cell was measured with several seeds, with the interval over them."""
    listed = list(rows)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in listed:
        groups.setdefault(tuple(row.get(name) for name in CELL_COLUMNS), []).append(row)
    ends = {key: _seed_interval(found) for key, found in groups.items() if len(found) > 1}
    return [row | ends.get(tuple(row.get(name) for name in CELL_COLUMNS), {}) for row in listed]


def _seed_interval(rows: list[Row]) -> dict[str, float]:
    """low and high of the mean over seeds: seeds are independent, so the plain t interval."""
    found = corrected_t([_none_to_nan(row["value"]) for row in rows], n_train=1, n_test=0)
    if metric_facts(rows[0]["metric"]).bounds == UNIT:
        found = clip_interval(found, 0.0, 1.0)
    return {"low": found.low, "high": found.high}


def _none_to_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def graft_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, GRAFT_SCHEMA)
