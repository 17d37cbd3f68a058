"""Decision thresholds, chosen on validation rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import BadData, Mismatch
from cutaway.core.lookup import lookup

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Threshold:
    """Scores above `value` are positive."""

    value: float

    def __call__(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """One decision per score."""
        return np.asarray(np.asarray(scores) > self.value)


def _accuracy(found: Counts, called: Counts, positives: int, n: int) -> Counts:
    # Correct: true positives and true negatives.
    return (found + (n - called) - (positives - found)) / n


def _f1(found: Counts, called: Counts, positives: int, n: int) -> Counts:
    return 2.0 * found / np.maximum(called + positives, 1)


CRITERIA: dict[str, Callable[[Counts, Counts, int, int], Counts]] = {
    "accuracy": _accuracy,
    "f1": _f1,
}


def best_threshold(
    scores: ArrayLike, labels: NDArray[Any], *, metric: str = "accuracy"
) -> Threshold:
    """The threshold with the best `metric` on these rows, found by one sort.

    All thresholds are compared, including "always positive" (-inf) and "always negative" (the
    highest score), so equal scores need no special case. A threshold between two scores is half-way
    between them; of equally good ones the middle one is taken.
    """
    criterion = lookup(CRITERIA, metric, kind="threshold metric")
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels) == 1
    _check_scores(values, positive)
    levels, place, count = np.unique(values, return_inverse=True, return_counts=True)
    # For each threshold, from -inf upwards: number of positives predicted, and of true positives.
    called = len(values) - np.concatenate([[0.0], np.cumsum(count)])
    hits = np.bincount(place, weights=positive, minlength=len(levels))
    found = hits.sum() - np.concatenate([[0.0], np.cumsum(hits)])
    merit = criterion(found, called, int(positive.sum()), len(values))
    if np.isneginf(levels[0]):
        # No threshold is below a score of -inf: "always positive" is impossible.
        merit[0] = -1.0
    best = np.flatnonzero(merit == merit.max())
    return Threshold(float(_candidate_thresholds(levels)[best[len(best) // 2]]))


def _candidate_thresholds(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """One threshold below all levels, one between each two, one at the highest."""
    low, high = levels[:-1], levels[1:]
    with np.errstate(invalid="ignore"):
        middle = low / 2 + high / 2
    # Neighbouring floats have no middle, and there is none between a number and infinity.
    middle = np.where((middle >= low) & (middle < high), middle, low)
    return np.concatenate([[-np.inf], middle, levels[-1:]])


def _check_scores(values: NDArray[np.float64], positive: NDArray[np.bool_]) -> None:
    if values.ndim != 1 or values.shape != positive.shape:
        raise Mismatch(
            f"A threshold needs (n,) scores and labels, got {values.shape} and {positive.shape}."
        )
    if len(values) == 0:
        raise BadData("A threshold needs at least one validation row, got none.")
    if bool(np.isnan(values).any()):
        raise BadData(f"{int(np.isnan(values).sum())} of {len(values)} validation scores are NaN.")
