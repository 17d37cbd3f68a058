"""Calibration: whether predicted probabilities match observed frequencies.

A classifier is calibrated when, of all predictions with confidence 0.8, 80 % are correct. The
expected calibration error is the mean gap between the two, over bins of equal width (Guo et
al. 2017, "On Calibration of Modern Neural Networks"; the bins are theirs: 15, left-open).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadSpec


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
