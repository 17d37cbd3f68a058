"""Measured cells become tidy rows, with the interval of each cell's mean beside every value."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from cutaway.measure.intervals import Interval, corrected_t, wilson, within
from cutaway.measure.metrics import UNIT
from cutaway.measure.splits import Split

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
MAIN = {
    "binary": "accuracy",
    "multiclass": "accuracy",
    "multilabel": "f1_macro",
    "regression": "r2",
}
# Metrics that are a share of right answers: one repeat has a Wilson interval.
SHARES = ("accuracy", "accuracy_train")


@dataclass(frozen=True)
class Cell:
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
class Measured:
    """What one repeat of a cell gave: its sizes and its metrics."""

    repeat: int
    n_train: int
    n_val: int
    n_test: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None
    """The training size asked for by a learning curve: repeats of one size belong together."""

    @classmethod
    def of(cls, split: Split, metrics: Mapping[str, float]) -> "Measured":
        """The metrics of one split."""
        sizes = len(split.train), len(split.val), len(split.test)
        return cls(split.repeat, *sizes, metrics, split.size)


def tidy(cell: Cell, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per repeat and metric; low and high are those of the cell's mean."""
    by_size: dict[int | None, list[Measured]] = defaultdict(list)
    for one in measured:
        by_size[one.size].append(one)
    return [row for group in by_size.values() for row in _group(cell, group)]


def _group(cell: Cell, group: Sequence[Measured]) -> Iterable[dict[str, Any]]:
    """The rows of repeats of the same training size."""
    for metric in group[0].metrics:
        interval = spread([m.metrics[metric] for m in group], group, metric)
        for one in group:
            yield {
                **_where(cell, one),
                "metric": metric,
                "value": _number(one.metrics[metric]),
                "low": _number(interval.low),
                "high": _number(interval.high),
                "status": "done",
                "reason": "",
            }


def spread(values: Sequence[float], group: Sequence[Measured], metric: str) -> Interval:
    """The 95 % interval of the mean: corrected over repeats, Wilson for one repeat of a share."""
    if len(group) == 1 and metric in SHARES and math.isfinite(values[0]):
        n = group[0].n_test if metric == "accuracy" else group[0].n_train
        return wilson(values[0] * n, n)
    n_train, n_test = (
        float(np.mean([getattr(m, k) for m in group])) for k in ("n_train", "n_test")
    )
    interval = corrected_t(values, n_train=n_train, n_test=n_test)
    plain = metric.removesuffix("_ref").removesuffix("_train")
    return within(interval, 0.0, 1.0) if plain in UNIT else interval


def failed(cell: Cell, reason: str, metric: str) -> dict[str, Any]:
    """The row of a cell that could not be measured: no value, but the reason."""
    nothing = Measured(repeat=0, n_train=0, n_val=0, n_test=0)
    empty = {"metric": metric, "value": None, "low": None, "high": None}
    return {**_where(cell, nothing), **empty, "status": "failed", "reason": reason}


def frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Tidy rows as a data frame with the promised columns, in a fixed order."""
    table = pl.DataFrame(list(rows), schema=SCHEMA, orient="row")
    return table.sort([*COORDINATES, "metric"], maintain_order=True)


def _where(cell: Cell, one: Measured) -> dict[str, Any]:
    return {
        "model": cell.model, "data": cell.data, "kind": cell.kind, "layers": cell.layers,
        "pool": cell.pool, "classifier": cell.classifier, "repeat": one.repeat,
        "n_train": one.n_train, "n_val": one.n_val, "n_test": one.n_test,
    }  # fmt: skip


def _number(value: float) -> float | None:
    """A float, or None where there is none (JSON and SQL know no NaN)."""
    return float(value) if math.isfinite(value) else None
