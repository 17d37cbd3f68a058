"""The rows of a graft run: one per kind of mask, size, seed and metric."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from cutaway.measure.calibration import Reliability
from cutaway.measure.intervals import Interval, clip_interval, over_seed_rows
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.measure.shared_rows import BlockScores, mean_block_scores, seeds_interval
from cutaway.recipe.result import Row, bounds

GRAFT_SCHEMA = {
    **dict.fromkeys(("base", "tuned", "task", "kind"), pl.String),
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
PSEUDO = "pseudo_"
"""Begins the metric of a row that has what one block of test rows contributes to a metric."""
CELL_COLUMNS = ("kind", "sparsity", "data", "layer", "part", "head", "bin", "step", "metric")


@dataclass(frozen=True)
class GraftCoordinates:
    """The coordinates that all rows of a run share."""

    base: str
    tuned: str | None
    task: str

    def row(self, kind: str, metric: str, value: float | Interval | None, **cell: Any) -> Row:
        """One row; a bare number has no interval."""
        return {**asdict(self), "kind": kind, "metric": metric, **cell, **bounds(value)}

    def scores(self, kind: str, scores: Mapping[str, Any], **cell: Any) -> list[Row]:
        """One row per metric."""
        return [self.row(kind, name, value, **cell) for name, value in scores.items()]

    def blocks(self, kind: str, metric: str, scores: BlockScores, **cell: Any) -> list[Row]:
        """The metric by blocks of test rows, from which models are compared."""
        return [
            self.row(kind, f"{PSEUDO}{metric}", value, bin=i, **cell)
            for i, value in enumerate(scores.blocks)
        ]

    def bins(self, kind: str, diagram: Reliability, **cell: Any) -> list[Row]:
        """A reliability diagram: confidence, accuracy and count of each bin that isn't empty."""
        return [
            self.row(kind, f"bin_{name}", float(getattr(diagram, name)[i]), bin=i, **cell)
            for i in range(len(diagram.count))
            if diagram.count[i]
            for name in ("confidence", "accuracy", "count")
        ]


def with_seed_intervals(rows: Iterable[Row], worth: float) -> list[Row]:
    """The rows; a cell measured with several seeds gets the interval over the seeds.

    For a metric that is known by blocks of test rows it comes from these; a perfect score of it is
    worth that many rows.
    """
    listed = list(rows)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in listed:
        groups.setdefault(_cell(row), []).append(row)
    ends = {}
    for key, many in groups.items():
        if len(many) > 1 and not many[0]["metric"].startswith(PSEUDO):
            alike = [row for row in listed if _same_model(row, many[0])]
            ends[key] = _seed_interval(many, block_scores_by_seed(alike, many[0]["metric"], worth))
    return [row | ends.get(_cell(row), {}) for row in listed]


def _same_model(row: Row, other: Row) -> bool:
    """Whether two rows are of the same kind of model on the same rows, whatever their seed."""
    names = ("kind", "sparsity", "data", "layer", "part", "head", "step")
    return all(row.get(name) == other.get(name) for name in names)


def read_block_scores(rows: Iterable[Row], metric: str, worth: float) -> BlockScores:
    """The score of one kind of model over its seeds by blocks of test rows, from its rows."""
    made = block_scores_by_seed(rows, metric, worth)
    return mean_block_scores(made) if made else BlockScores((), (math.nan,), worth)


def block_scores_by_seed(rows: Iterable[Row], metric: str, worth: float) -> list[BlockScores]:
    """The score of every seed; without blocks if the rows have none."""
    values: dict[Any, float] = {}
    blocks: dict[Any, list[float]] = {}
    for row in rows:
        value = math.nan if row["value"] is None else float(row["value"])
        if row["metric"] == metric and row.get("bin") is None:
            values[row.get("seed")] = value
        elif row["metric"] == f"{PSEUDO}{metric}":
            blocks.setdefault(row.get("seed"), []).append(value)
    # Rows of a run that an earlier version began have no blocks.
    return [BlockScores(tuple(blocks.get(s, ())), (v,), worth) for s, v in values.items()]


def _cell(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in CELL_COLUMNS)


def _seed_interval(rows: list[Row], blocks: list[BlockScores]) -> dict[str, float]:
    """low and high of the mean over seeds, which share their test rows."""
    metric = rows[0]["metric"]
    if blocks and all(one.blocks for one in blocks):
        found = seeds_interval(blocks, metric)
        return {"low": found.low, "high": found.high}
    columns = [[row.get(name) for row in rows] for name in ("value", "low", "high")]
    interval = over_seed_rows(*columns)
    if metric_facts(metric).bounds == UNIT:
        interval = clip_interval(interval, 0.0, 1.0)
    return {"low": interval.low, "high": interval.high}
