"""Which rows go through the model together: sorted by length, cut by a token budget.

Padding is work for nothing, so a batch holds rows of nearly equal length; too many tokens at
once fall out of the processor's cache, so the budget is found by trying a few while the real
work is being done (nothing is computed twice to find it). Which rows go together decides the last
digit of what is read, so the clock is asked once per model and machine, and never for a small set.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Tokens per batch worth trying, smallest first.
TOKEN_BUDGETS = (256, 512, 1024, 2048, 4096)
# A set of fewer tokens is read with the middle budget: trying would cost more than it gains.
SMALL_SET_TOKENS = 8192
# A row joins a batch while it wastes at most this share of the batch on padding.
MAX_PADDING_SHARE = 0.05
# Up to so many tokens a batch costs the reading of the weights, whatever it holds: padding is free.
FREE_PADDING_TOKENS = 192


@dataclass(frozen=True)
class TokenBatch:
    """Row numbers that go through the model together, and the longest row's tokens."""

    rows: NDArray[np.int64]
    width: int
    tokens: int
    """Real tokens, padding not counted."""


@dataclass
class TokenBudget:
    """The token budget: fixed when given, otherwise the fastest of those tried on the way."""

    fixed: int | None = None
    tries: int = 2
    speeds: dict[int, list[float]] = field(default_factory=dict)

    def current(self) -> int:
        """The budget for the next batch."""
        if self.fixed is not None:
            return self.fixed
        return self._untried() or self.best()

    def best(self) -> int:
        """The fixed one, or the fastest so far; the middle one before anything was measured."""
        if self.fixed is not None:
            return self.fixed
        return max(self.speeds, key=lambda b: max(self.speeds[b]), default=default_budget())

    def learn(self, budget: int, tokens: int, seconds: float) -> bool:
        """Remember how fast a batch of this budget went; whether that settled which is best."""
        if self.fixed is not None:
            return False
        self.speeds.setdefault(budget, []).append(tokens / max(seconds, 1e-9))
        if self._untried() is not None:
            return False
        self.fixed = self.best()
        return True

    def _untried(self) -> int | None:
        """The smallest budget that was not tried often enough and may be worth it."""
        for budget in TOKEN_BUDGETS:
            if len(self.speeds.get(budget, [])) < self.tries and self._worth_trying(budget):
                return budget
        return None

    def _worth_trying(self, budget: int) -> bool:
        """Larger budgets only while they keep getting faster."""
        smaller = [b for b in TOKEN_BUDGETS if b < budget and b in self.speeds]
        if len(smaller) < 2:
            return True
        last, before = max(self.speeds[smaller[-1]]), max(self.speeds[smaller[-2]])
        return last > 0.95 * before


def default_budget() -> int:
    """The budget that is right for most machines."""
    return TOKEN_BUDGETS[len(TOKEN_BUDGETS) // 2]


def batches_by_length(
    lengths: Sequence[int], budget: TokenBudget
) -> Iterator[tuple[TokenBatch, int]]:
    """All rows, longest first, each once, in batches within the budget (with that budget).

    Longest first: memory peaks at the start, where running out of it costs nothing.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(order):
        allowed = budget.current()
        end = _batch_end(lengths, order, start, allowed)
        rows = order[start:end]
        real = int(sum(lengths[i] for i in rows))
        yield TokenBatch(rows, int(lengths[order[start]]), real), allowed
        start = end


def _batch_end(lengths: Sequence[int], order: NDArray[np.int64], start: int, allowed: int) -> int:
    """One past the last row of the batch that starts at `start`."""
    width = max(int(lengths[order[start]]), 1)
    end, real = start + 1, width
    while end < len(order) and (end - start + 1) * width <= allowed:
        real += int(lengths[order[end]])
        padded = (end - start + 1) * width
        if padded > FREE_PADDING_TOKENS and real < (1 - MAX_PADDING_SHARE) * padded:
            break
        end += 1
    return end


class Stopwatch:
    """Seconds since it was last asked."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        return passed
