"""Measured cells become tidy rows, with the interval of each cell's mean beside every value."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from cutaway.measure.intervals import Interval, clip_interval
from cutaway.measure.metrics import UNIT_METRICS
from cutaway.measure.splits import Split
from cutaway.measure.tested import ResamplingInfo, mean_interval

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
# Metrics that are a share of right answers: what the rows bring to their error is Wilson's.
PROPORTION_METRICS = ("accuracy", "accuracy_ref", "accuracy_train")


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


@dataclass(frozen=True)
class RepeatMetrics:
    """What one repeat of a cell gave: its sizes and its metrics."""

    repeat: int
    n_train: int
    n_val: int
    n_test: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None
    """The training size asked for by a learning curve: repeats of one size belong together."""
    drawn: int | None = None
    tested: int | None = None
    """Both as the split has them."""
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Pseudo-values of some metrics over blocks of shared test rows."""

    @classmethod
    def of(
        cls,
        split: Split,
        metrics: Mapping[str, float],
        blocks: Mapping[str, tuple[float, ...]] | None = None,
    ) -> "RepeatMetrics":
        """The metrics of one split."""
        sizes = len(split.train), len(split.val), len(split.test)
        return cls(
            split.repeat, *sizes, metrics, split.size, split.drawn, split.tested, blocks or {}
        )


def cell_rows(cell: ProbeCell, measured: Sequence[RepeatMetrics]) -> list[dict[str, Any]]:
    """One row per repeat and metric; low and high are those of the cell's mean."""
    return [row for group in group_by_size(measured) for row in _rows_of_size(cell, group)]


def resampling_info(group: Sequence[RepeatMetrics], metric: str) -> ResamplingInfo:
    """What one metric of some repeats stands on."""
    train, test = (float(np.mean([getattr(m, k) for m in group])) for k in ("n_train", "n_test"))
    of_train = metric.endswith("_train")
    tested = round(train) if of_train and group[0].tested else group[0].tested
    known = [m.blocks[metric] for m in group if metric in m.blocks]
    if of_train and len(group) == 1:
        test = train
    return ResamplingInfo(
        float(np.mean([m.drawn or m.n_train for m in group])), test, tested,
        tuple(np.mean(known, axis=0).tolist()) if known else (),
    )  # fmt: skip


def group_by_size(measured: Sequence[RepeatMetrics]) -> Iterable[list[RepeatMetrics]]:
    """The repeats of each training size."""
    found: dict[int | None, list[RepeatMetrics]] = defaultdict(list)
    for one in measured:
        found[one.size].append(one)
    return found.values()


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


def metric_interval(
    values: Sequence[float], group: Sequence[RepeatMetrics], metric: str
) -> Interval:
    """The 95 % interval of the mean, by what the repeats were tested on."""
    interval = mean_interval(
        values, resampling_info(group, metric), share=metric in PROPORTION_METRICS
    )
    plain = metric.removesuffix("_ref").removesuffix("_train")
    return clip_interval(interval, 0.0, 1.0) if plain in UNIT_METRICS else interval


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
