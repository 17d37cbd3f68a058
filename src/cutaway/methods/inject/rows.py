"""The tidy table of an inject run: one row per measured cell."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from cutaway.measure.intervals import Interval
from cutaway.recipe.table import Row, bounds, table

SCHEMA = {
    "model": pl.String,
    "skill": pl.String,
    "regulariser": pl.String,
    "strength": pl.Float64,
    "stage": pl.String,
    "probe": pl.String,
    "seed": pl.Int64,
    "step": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


@dataclass(frozen=True)
class InjectCoordinates:
    """The coordinates that rows share."""

    model: str
    skill: str
    regulariser: str = "-"
    strength: float | None = None
    seed: int | None = None

    def row(self, stage: str, probe: str, metric: str, value: float | Interval, **more: Any) -> Row:
        """One cell; a bare number has no interval."""
        cell = {**vars(self), "stage": stage, "probe": probe, "metric": metric, **more}
        return cell | bounds(value)


def inject_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, SCHEMA)
