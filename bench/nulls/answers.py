"""Simulated answers of probes to test rows, with known true accuracies.

A row is answered correctly when a normal variable is below a quantile, which gives exactly the
wanted accuracy. The variable is the sum of how hard the row is for all cells, how hard it is for
this cell, and what changes with each training; `Likeness` has their shares of the variance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from bench.nulls.tally import Verdict
from cutaway.measure.jackknife import assign_blocks
from cutaway.measure.repeats import RepeatMetrics, ResamplingInfo, RowScores, resampling_info
from cutaway.measure.splits import Split, SplitPlan, split


@dataclass(frozen=True)
class Likeness:
    """Shares of the variance; the rest changes with each training."""

    rows: float = 0.4
    """Rows that are hard for all cells."""
    cells: float = 0.4
    """Rows that are hard for one cell, in all trainings."""


LEVEL = 0.7
"""The true accuracy of most cells."""
ALIKE = Likeness(rows=0.75, cells=0.2)
"""Cells that answer most rows alike, so that equivalence can be shown at all."""
DESIGNS: dict[str, dict[str, Any]] = {
    "5 splits of 300 rows": {"rows": 300, "repeats": 5, "protocol": "repeats"},
    "150 shared test rows": {"rows": 300, "repeats": 1, "protocol": "fixed"},
}
"""For differences that are none."""
LARGE: dict[str, dict[str, Any]] = {
    "5 splits of 6,000 rows": {"rows": 6000, "repeats": 5, "protocol": "repeats"},
    "3,000 shared test rows": {"rows": 6000, "repeats": 1, "protocol": "fixed"},
}
"""For differences of the size of the margin."""
Run = Callable[[int], Verdict]


@dataclass(frozen=True)
class Simulated:
    """The scores of one cell."""

    values: tuple[float, ...]
    validation: tuple[float, ...]
    resampling: ResamplingInfo


def simulate(
    rng: np.random.Generator,
    accuracies: Sequence[float],
    *,
    rows: int,
    repeats: int,
    protocol: str = "repeats",
    like: Likeness | None = None,
) -> list[Simulated]:
    """The accuracy of every cell on the test and validation rows of every repeat."""
    like = like or Likeness()
    splits = _splits(rng, rows, repeats, protocol)
    blocks = assign_blocks([one.test for one in splits], rows)
    shared = rng.standard_normal(rows) * np.sqrt(like.rows)
    fresh = np.sqrt(1 - like.rows - like.cells)
    found = []
    for accuracy in accuracies:
        own = shared + rng.standard_normal(rows) * np.sqrt(like.cells)
        correct = [own + rng.standard_normal(rows) * fresh < norm.ppf(accuracy) for _ in splits]
        found.append(_scores(correct, splits, blocks))
    return found


def _splits(rng: np.random.Generator, rows: int, repeats: int, protocol: str) -> tuple[Split, ...]:
    labels = np.arange(rows) % 2
    parts = np.array(["train", "dev", "test", "test"])[np.arange(rows) // 2 % 4]
    plan = SplitPlan(protocol, seed=int(rng.integers(2**31)), repeats=repeats)
    fixed = parts if protocol == "fixed" else None
    return split(labels, plan, task="binary", parts=fixed, classes=("a", "b"))


def _scores(
    correct: list[NDArray[np.bool_]], splits: Sequence[Split], blocks: NDArray[np.int64]
) -> Simulated:
    count = int(blocks.max()) + 1
    group, validation = [], []
    for right, one in zip(correct, splits, strict=True):
        test = right[one.test].astype(np.float64)
        scores = RowScores(accuracy_blocks(test, blocks[one.test], count), len(test))
        metrics = {"accuracy": float(test.mean())}
        group.append(RepeatMetrics.of(one, metrics, {"accuracy": scores}))
        validation.append(float(right[one.val].mean()))
    values = tuple(one.metrics["accuracy"] for one in group)
    return Simulated(values, tuple(validation), resampling_info(group, "accuracy"))


def accuracy_blocks(
    right: NDArray[np.float64], blocks: NDArray[np.int64], count: int
) -> tuple[float, ...]:
    """The jackknife's pseudo-values of an accuracy: those of `pseudo_values`, all at once."""
    sums = np.bincount(blocks, weights=right, minlength=count)
    sizes = np.bincount(blocks, minlength=count)
    whole, others = right.mean(), len(right) - sizes
    known = np.divide(right.sum() - sums, others, out=np.full(count, np.nan), where=others > 0)
    return tuple((count * whole - (count - 1) * known).tolist())
