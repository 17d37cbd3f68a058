"""Paired tests behind the verdicts of shortcut; texts, not tokens, are the independent units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.measure.conclusions import MARGIN, Conclusion, conclude
from cutaway.measure.intervals import Difference, Interval, corrected_t, paired_t, wilson

LEVEL = 0.05


def paired_over_texts(first: ArrayLike, second: ArrayLike, texts: ArrayLike) -> Difference:
    """First minus second at the same tokens: the paired t test on the means of each text."""
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    means = _per_text(gaps, texts)
    # Texts are independent, so the plain t test: nothing overlaps.
    return paired_t(means, np.zeros_like(means), n_train=1, n_test=0)


def explained_variance_gain(
    target: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    texts: ArrayLike,
) -> Difference:
    """How much more of the target's variance the first prediction explains, all (n, d).

    The difference of two r2, each averaged over coordinates, is a sum over tokens; its error comes
    from the sums of each text.
    """
    spread = ((target - target.mean(axis=0)) ** 2).sum(axis=0)
    known = spread > 0
    worse, better = (((some - target) ** 2)[:, known] for some in (second, first))
    gains = ((worse - better) / spread[known]).mean(axis=1)
    sums = _per_text(gains, texts, mean=False)
    return paired_t(len(sums) * sums, np.zeros_like(sums), n_train=1, n_test=0)


def log_ratio(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The log of the ratio of two times of the same texts, by the paired t test."""
    return paired_t(np.log(first), np.log(second), n_train=1, n_test=0)


def conclude_over_texts(found: Difference, texts: int, *, among: int = 1) -> Conclusion:
    """What a difference allows to conclude; `among` so many that hold the level together."""
    return conclude(found, margin=MARGIN, rows=texts, level=LEVEL / among)


def best_map_gain(
    correct: Mapping[str, ArrayLike], best: str, texts: NDArray[np.int64]
) -> Conclusion | None:
    """The best map against the identity; the level holds over all maps it was chosen from."""
    if best == "id" or "id" not in correct:
        return None
    found = paired_over_texts(correct[best], correct["id"], texts)
    return conclude_over_texts(found, len(np.unique(texts)), among=len(correct) - 1)


@dataclass(frozen=True)
class TriedExit:
    """An early exit on texts that had no part in the choice of its setting."""

    setting: str
    """Map and confidence."""
    threshold: float
    """Lambda."""
    saved: Interval
    agreement: Interval


def mean_over_texts(values: ArrayLike, texts: ArrayLike) -> Interval:
    """The mean over texts of each text's mean, with its t interval."""
    given = np.asarray(values, dtype=np.float64)
    return corrected_t(_per_text(given, texts), n_train=1, n_test=0)


def share_over_texts(values: ArrayLike, texts: ArrayLike) -> Interval:
    """A proportion of tokens, with Wilson's interval for as many answers as there are texts.

    The mean of a text varies at most as much as a single answer, so this is never too narrow.
    """
    means = _per_text(np.asarray(values, dtype=np.float64), texts)
    return wilson(float(means.sum()), len(means))


def _per_text(
    values: NDArray[np.float64], texts: ArrayLike, *, mean: bool = True
) -> NDArray[np.float64]:
    _, place = np.unique(np.asarray(texts), return_inverse=True)
    sums = np.bincount(place, weights=values)
    return np.asarray(sums / np.bincount(place) if mean else sums, dtype=np.float64)
