"""Batches of similar length within a token budget.

Rows of similar length need little padding. The fastest budget depends on the processor's cache, so
a few are tried during the real work (nothing is computed twice). Which rows share a batch affects
the last digit of the states, so the budget is measured once per model and machine, and never for a
small set.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

TOKEN_BUDGETS = (256, 512, 1024, 2048, 4096)
"""Tokens per batch to try, smallest first."""
SMALL_SET_TOKENS = 8192
"""Sets with fewer tokens use the default budget: trying others would cost more than it gains."""
MAX_PADDING_SHARE = 0.05
"""A row joins a batch while at most this share of the batch is padding."""
FREE_PADDING_TOKENS = 192
"""Up to this many tokens a batch takes the time of reading the weights, so padding is free."""


@dataclass(frozen=True)
class TokenBatch:
    """Row numbers that go through the model together, and the length of the longest row."""

    rows: NDArray[np.int64]
    width: int
    tokens: int
    """Real tokens, padding not counted."""


@dataclass
class TokenBudget:
    """The token budget: fixed, or the fastest of those tried so far."""

    fixed: int | None = None
    tries: int = 2
    speeds: dict[int, list[float]] = field(default_factory=dict)

    def current(self) -> int:
        """The budget for the next batch."""
        if self.fixed is not None:
            return self.fixed
        return self._untried() or self.best()

    def best(self) -> int:
        """The fixed budget, or the fastest so far; the default before anything was measured."""
        if self.fixed is not None:
            return self.fixed
        return max(self.speeds, key=lambda b: max(self.speeds[b]), default=default_budget())

    def learn(self, budget: int, tokens: int, seconds: float) -> bool:
        """Record the speed of a batch; True when this settled which budget is best."""
        if self.fixed is not None:
            return False
        self.speeds.setdefault(budget, []).append(tokens / max(seconds, 1e-9))
        if self._untried() is not None:
            return False
        self.fixed = self.best()
        return True

    def _untried(self) -> int | None:
        """The smallest budget that still has to be tried."""
        for budget in TOKEN_BUDGETS:
            if len(self.speeds.get(budget, [])) < self.tries and self._worth_trying(budget):
                return budget
        return None

    def _worth_trying(self, budget: int) -> bool:
        """Whether a larger budget may be faster: only while larger ones were."""
        smaller = [b for b in TOKEN_BUDGETS if b < budget and b in self.speeds]
        if len(smaller) < 2:
            return True
        last, before = max(self.speeds[smaller[-1]]), max(self.speeds[smaller[-2]])
        return last > 0.95 * before


def default_budget() -> int:
    """The budget that suits most machines."""
    return TOKEN_BUDGETS[len(TOKEN_BUDGETS) // 2]


def batches_by_length(
    lengths: Sequence[int], budget: TokenBudget
) -> Iterator[tuple[TokenBatch, int]]:
    """Every row once, in batches within the budget (with that budget), the longest rows first.

    Memory peaks at the start then, where running out of it loses the least work.
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
    """A clock that measures laps."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        return passed
