"""The share of the fine-tuning gain that a graft keeps, and the smallest mask that keeps enough."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutaway.core.errors import BadSpec
from cutaway.measure.intervals import Interval, ratio
from cutaway.measure.shared_rows import BlockScores


@dataclass(frozen=True)
class SizeSearchResult:
    """The smallest size that keeps the wanted share of the gain, and all sizes that were tried."""

    size: int
    share: float
    reached: bool
    tried: tuple[tuple[int, float], ...]


def relative_gain(graft: float, base: float, tuned: float) -> float:
    """(graft - base) / (tuned - base); NaN if fine-tuning brought no gain."""
    return (graft - base) / (tuned - base) if tuned > base else math.nan


def kept_gain(graft: BlockScores, base: BlockScores, tuned: BlockScores) -> Interval:
    """The relative gain with Fieller's interval over blocks of test rows.

    Without ends (NaN) if the gain is not shown: its share can then be anything.
    """
    share = relative_gain(graft.mean, base.mean, tuned.mean)
    found = ratio(np.subtract(graft.blocks, base.blocks), np.subtract(tuned.blocks, base.blocks))
    if math.isnan(share) or math.isnan(found.low):
        return Interval(share, math.nan, math.nan, 0.95, found.n)
    # Pseudo-values of a metric that is no mean over rows have nearly its value as their mean.
    return Interval(share, min(found.low, share), max(found.high, share), 0.95, found.n)


def find_smallest_size(
    most: int, gain: Callable[[int], float], wanted: float, *, ratio: float = 1.05
) -> SizeSearchResult:
    """The smallest size up to `most` whose gain is at least `wanted`, by bisection in log space.

    The gain is assumed to grow with the size. The result is a size that was tried and keeps the
    share; it is at most `ratio` times too large.
    """
    if not 0 < wanted <= 1:
        raise BadSpec(f"The wanted share of the gain must be in (0, 1], got {wanted!r}.")
    tried: dict[int, float] = {}

    def keeps(size: int) -> bool:
        if size not in tried:
            tried[size] = gain(size)
        return tried[size] >= wanted

    if not keeps(most):
        return SizeSearchResult(most, tried[most], False, tuple(sorted(tried.items())))
    low, high = 0, most
    while high - low > 1 and high > ratio * max(low, 1):
        middle = min(max(round(math.sqrt(max(low, 1) * high)), low + 1), high - 1)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return SizeSearchResult(high, tried[high], True, tuple(sorted(tried.items())))
