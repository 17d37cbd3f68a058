"""Rows."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from cutaway.recipe.table import Row, bounds, table
from cutaway.training.loop import TrainingResult
from cutaway.training.task_scores import Scores

FINETUNE_SCHEMA = {
    "base": pl.String,
    "task": pl.String,
    "mode": pl.String,
    "kind": pl.String,
    "shots": pl.Int64,
    "seed": pl.Int64,
    "step": pl.Int64,
    "part": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


@dataclass(frozen=True)
class FinetuneCoordinates:
    """The coordinates that all rows of a run share."""

    base: str
    task: str
    mode: str
    shots: int | None
    seed: int

    def rows(self, kind: str, step: int, part: str, scores: Mapping[str, Any]) -> list[Row]:
        """One row per metric; a bare number has no interval."""
        return [self.row(kind, step, part, name, value) for name, value in scores.items()]

    def row(self, kind: str, step: int, part: str, metric: str, value: Any) -> Row:
        """One cell."""
        cell = {**asdict(self), "kind": kind, "step": step, "part": part, "metric": metric}
        return cell | bounds(value)


def curve_rows(where: FinetuneCoordinates, curve: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The training curve: losses of train, scores of dev."""
    rows = []
    for point in curve:
        step = int(point["step"])
        for name, value in point.items():
            if name == "step" or value is None:
                continue
            part = "dev" if name.startswith("dev_") else "train"
            kind = "tuned" if step else "base"
            rows.append(where.row(kind, step, part, name.removeprefix("dev_"), value))
    return rows


def finetune_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, FINETUNE_SCHEMA)


def finetune_verdict(
    where: FinetuneCoordinates,
    metric: str,
    scores: Mapping[str, Scores],
    trained: TrainingResult,
    rows: int,
) -> list[str]:
    """What follows from the numbers, in sentences."""
    before, after, always = (scores[kind][metric] for kind in ("base", "tuned", "majority"))
    shots = f" ({where.shots} a class)" if where.shots else ""
    said = [
        f"{metric} on {where.task} went from {_format_score(before.mean)} to {_format_score(after.mean)} "
        f"(95 %: {_format_score(after.low)} to {_format_score(after.high)}, {after.n} test rows) in "
        f"{trained.best_step} steps on {rows} rows{shots}; one answer for all gets "
        f"{_format_score(always.mean)}."
    ]
    if not after.low > always.mean and not np.isnan(always.mean):
        said.append("That is not clearly better than one answer for all: train longer, with a "
                    "higher learning rate, or on more rows.")  # fmt: skip
    elif not after.mean > before.mean:
        said.append("The model was as good before: this training taught it nothing measurable.")
    if "ece" in scores["tuned"]:
        error = {kind: scores[kind]["ece"].mean for kind in ("base", "tuned")}
        said.append(f"Its calibration error went from {_format_score(error['base'])} to "
                    f"{_format_score(error['tuned'])}.")  # fmt: skip
    return said


def _format_score(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.3f}"
