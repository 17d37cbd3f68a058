"""Calibration of probabilities, and decision thresholds chosen on validation rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.lookup import lookup


@dataclass(frozen=True, eq=False)
class Reliability:
    """Mean confidence, accuracy and number of predictions per confidence bin."""

    edges: NDArray[np.float64]
    """The bins + 1 edges; bin i holds confidences in (edges[i], edges[i + 1]]."""
    confidence: NDArray[np.float64]
    """Mean confidence of the bin's predictions; NaN if it has none."""
    accuracy: NDArray[np.float64]
    """Share of the bin's predictions that are correct; NaN if it has none."""
    count: NDArray[np.int64]
    """Number of predictions in the bin."""

    @property
    def ece(self) -> float:
        """The expected calibration error: the gap per bin, weighted by its predictions."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float(gaps @ self.count / self.count.sum())


def reliability(
    probabilities: NDArray[np.floating], labels: NDArray[Any], *, bins: int = 15
) -> Reliability:
    """The reliability bins of top predictions.

    `probabilities` is (n,), the probability of class 1, or (n, cls). The prediction is the most
    probable class (the lowest on a tie), its confidence the probability of that class.
    """
    if bins < 1:
        raise BadSpec(f"bins must be at least 1, got {bins!r}.")
    confidence, right = _top_predictions(np.asarray(probabilities, dtype=float), np.asarray(labels))
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    some = np.maximum(count, 1)
    empty = np.where(count > 0, 0.0, np.nan)
    return Reliability(
        edges=np.linspace(0.0, 1.0, bins + 1),
        confidence=np.bincount(place, confidence, bins) / some + empty,
        accuracy=np.bincount(place, right, bins) / some + empty,
        count=count,
    )


def ece(probabilities: NDArray[np.floating], labels: NDArray[Any], *, bins: int = 15) -> float:
    """The expected calibration error; NaN if the scores are not probabilities (outside [0, 1])."""
    values = np.asarray(probabilities, dtype=float)
    if values.min() < 0.0 or values.max() > 1.0:
        return float("nan")
    return reliability(values, labels, bins=bins).ece


def _top_predictions(
    probabilities: NDArray[np.float64], labels: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if probabilities.ndim == 1:
        answer = probabilities > 0.5
        return np.where(answer, probabilities, 1.0 - probabilities), answer == (labels == 1)
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


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


def _balanced_accuracy(found: Counts, called: Counts, positives: int, n: int) -> Counts:
    negatives = n - positives
    recalls = [(found, positives), (negatives - (called - found), negatives)]
    return np.mean([right / size for right, size in recalls if size], axis=0)


CRITERIA: dict[str, Callable[[Counts, Counts, int, int], Counts]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "balanced_accuracy": _balanced_accuracy,
}
"""By metric: its value from true positives, predicted positives, positives and rows."""
MOVE_ERRORS = {"accuracy": 3.0, "f1": 1.0, "balanced_accuracy": 1.0}
"""Standard errors by which another threshold must be better than the classifier's own.

The own one aims at accuracy: the best of many others must be better by more than such a choice
gains by chance. It does not aim at metrics that weigh the classes, so there less is enough."""


def choose_threshold(
    scores: ArrayLike, labels: NDArray[Any], own: float, *, metric: str = "accuracy"
) -> Threshold:
    """The classifier's own threshold, unless another one is clearly better on these rows.

    The best threshold of a few hundred rows is mostly noise: it is used only if its gain over `own`
    is more than the metric's MOVE_ERRORS times the jackknife standard error of the gain. Rows of a
    single class say nothing about a threshold.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels) == 1
    best, mine = best_threshold(values, positive, metric=metric), Threshold(own)
    if positive.all() or not positive.any():
        return mine
    gain, error = _gain(CRITERIA[metric], positive, mine(values), best(values))
    return best if gain > MOVE_ERRORS[metric] * error else mine


def _gain(
    criterion: Callable[..., Any],
    positive: NDArray[np.bool_],
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
) -> tuple[float, float]:
    """How much better the second decisions are, and the jackknife's standard error of it.

    Rows with the same label and decisions are interchangeable, so each of the eight kinds is left
    out once.
    """
    kinds = np.array([(y, a, b) for y in (0, 1) for a in (0, 1) for b in (0, 1)], dtype=float)
    count = np.bincount(positive * 4 + first * 2 + second, minlength=8).astype(float)

    def gain(sizes: Counts) -> float:
        y, a, b = (kinds * sizes[:, None]).sum(axis=0)
        both = [(kinds[:, 0] * kinds[:, k] * sizes).sum() for k in (1, 2)]
        values = [
            criterion(found, called, y, sizes.sum())
            for found, called in zip(both, (a, b), strict=True)
        ]
        return float(values[1] - values[0])

    used = np.flatnonzero(count)
    n, weights = len(positive), count[used]
    without = np.array([gain(count - (np.arange(8) == kind)) for kind in used])
    spread = (weights * (without - weights @ without / n) ** 2).sum()
    return gain(count), float(np.sqrt((n - 1) / n * spread))


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
