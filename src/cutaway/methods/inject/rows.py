"""The tidy table of an inject run: one row per measured value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import polars as pl

from cutaway.measure.intervals import Interval
from cutaway.recipe.result import Row, bounds, table

if TYPE_CHECKING:
    from cutaway.training.loop import TrainingResult

DETAILS_FILE = "inject.json"
"""Details of figures that are not rows: curves at the largest Fisher entries, maps of weights."""
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
    """The columns that the rows of one training share."""

    model: str
    skill: str
    regulariser: str = "-"
    strength: float | None = None
    seed: int | None = None

    def row(self, stage: str, probe: str, metric: str, value: float | Interval, **more: Any) -> Row:
        """One row; a bare number has no interval."""
        cell = {**vars(self), "stage": stage, "probe": probe, "metric": metric, **more}
        return cell | bounds(value)

    def rows(self, stage: str, probe: str, metrics: Mapping[str, float | Interval]) -> list[Row]:
        """One row per metric."""
        return [self.row(stage, probe, metric, value) for metric, value in metrics.items()]

    def weight_rows(
        self, stage: str, metric: str, values: Mapping[tuple[int, str], float]
    ) -> list[Row]:
        """One row per layer and module."""
        return [self.row(stage, f"{i}/{part}", metric, v) for (i, part), v in values.items()]


def curve_rows(coordinates: InjectCoordinates, trained: "TrainingResult") -> list[Row]:
    """The learning curve: one row per evaluation and metric, then where training ended."""
    rows = [
        coordinates.row(
            "training", "curve", metric, nan if value is None else value, step=point["step"]
        )
        for point in trained.curve
        for metric, value in point.items()
        if metric != "step"
    ]
    ends = {"best_step": trained.best_step, "steps": trained.curve[-1]["step"]}
    return rows + [
        coordinates.row("training", trained.stopped, metric, float(value))
        for metric, value in ends.items()
    ]


def inject_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, SCHEMA)
