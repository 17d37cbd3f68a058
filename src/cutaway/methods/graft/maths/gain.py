"""How much of what fine-tuning brought is kept, and the smallest mask that keeps enough."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cutaway.core.errors import BadSpec

NAN = float("nan")


@dataclass(frozen=True)
class SizeSearchResult:
    """The smallest size that keeps the wished share, and every size that was tried."""

    size: int
    share: float
    reached: bool
    tried: tuple[tuple[int, float], ...]


def relative_gain(graft: float, base: float, tuned: float) -> float:
    """(graft - base) / (tuned - base); NaN where fine-tuning brought nothing."""
    return (graft - base) / (tuned - base) if tuned > base else NAN


def find_smallest_size(
    most: int, gain: Callable[[int], float], wished: float, *, ratio: float = 1.05
) -> SizeSearchResult:
    """The smallest size up to `most` whose gain is at least `wished`, by bisection of its log.

    The gain is taken to grow with the size. The answer is a size that was tried and keeps the
    share; sizes are told apart down to the factor `ratio`.
    """
    if not 0 < wished <= 1:
        raise BadSpec(f"The wished share of the gain must lie in (0, 1], got {wished!r}.")
    tried: dict[int, float] = {}

    def keeps(size: int) -> bool:
        if size not in tried:
            tried[size] = gain(size)
        return tried[size] >= wished

    if not keeps(most):
        return SizeSearchResult(most, tried[most], False, tuple(sorted(tried.items())))
    low, high = 0, most
    while high - low > 1 and high > ratio * max(low, 1):
        middle = min(max(round(math.sqrt(max(low, 1) * high)), low + 1), high - 1)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return SizeSearchResult(high, tried[high], True, tuple(sorted(tried.items())))
