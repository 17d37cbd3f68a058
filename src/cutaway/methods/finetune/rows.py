"""The rows of a fine-tuning: one per kind of model, step, split and metric."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from cutaway.recipe.result import Row, bounds

FINETUNE_SCHEMA = {
    **dict.fromkeys(("base", "task", "mode", "kind"), pl.String),
    **dict.fromkeys(("shots", "seed", "step"), pl.Int64),
    **dict.fromkeys(("part", "metric"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
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
        shared = {**asdict(self), "kind": kind, "step": step, "part": part}
        return [{**shared, "metric": name, **bounds(value)} for name, value in scores.items()]


def curve_rows(coordinates: FinetuneCoordinates, curve: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The training curve: losses on the training batches, losses and scores on dev."""
    rows: list[Row] = []
    for point in curve:
        step = int(point["step"])
        kind = "tuned" if step else "base"
        for name, value in point.items():
            if name != "step" and value is not None:
                part = "dev" if name.startswith("dev_") else "train"
                rows += coordinates.rows(kind, step, part, {name.removeprefix("dev_"): value})
    return rows
