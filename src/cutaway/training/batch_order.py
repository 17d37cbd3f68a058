"""Which rows train together at a step: shuffled every pass, of nearly equal length in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

# Rows are sorted by length within so many batches: padding small, company varied.
SORT_WINDOW = 32
# Lengths count as this much longer or shorter, drawn anew each pass, so that batches change.
LENGTH_JITTER = 0.05


@dataclass(frozen=True)
class BatchOrder:
    """The rows of every step, decided by the seed alone: nothing has to be kept to go on."""

    lengths: tuple[int, ...]
    batch: int
    seed: int
    window: int = SORT_WINDOW
    """Rows are sorted by length within so many batches; 1 makes each batch a plain draw."""

    def __call__(self, step: int) -> Rows:
        """The rows of step number `step`; every row comes once in each pass."""
        passed, place = divmod(step, self.per_pass)
        return epoch_batches(self, passed)[place]

    @property
    def per_pass(self) -> int:
        """Steps until every row was seen once."""
        return -(-len(self.lengths) // self.batch)


def make_batch_order(
    rows: Sequence[Sequence[int]], batch: int, seed: int, *, window: int = SORT_WINDOW
) -> BatchOrder:
    """The order in which these rows of tokens are learned from."""
    return BatchOrder(tuple(map(len, rows)), batch, seed, window)


@lru_cache(maxsize=4)
def epoch_batches(order: BatchOrder, passed: int) -> tuple[Rows, ...]:
    """The batches of pass number `passed`, in the order they are taken."""
    rng = np.random.default_rng([order.seed, passed])
    mixed = rng.permutation(len(order.lengths))
    lengths = np.asarray(order.lengths)[mixed]
    felt = lengths * (1 + LENGTH_JITTER * rng.uniform(-1, 1, len(mixed)))
    width = order.batch * order.window
    window = np.arange(len(mixed)) // width
    ordered = mixed[np.lexsort((felt, window))]
    batches = [ordered[i : i + order.batch] for i in range(0, len(ordered), order.batch)]
    return tuple(batches[i] for i in rng.permutation(len(batches)))
