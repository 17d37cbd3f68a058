"""Which rows train together at a step: shuffled every epoch, of similar length within a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

SORT_WINDOW = 32
"""Rows are sorted by length within this many batches: little padding, and still varied batches."""
LENGTH_JITTER = 0.05
"""Lengths are changed at random by up to this share in each epoch, so that batches vary."""


@dataclass(frozen=True)
class BatchOrder:
    """The rows of every step, determined by the seed alone: resuming needs no saved state."""

    lengths: tuple[int, ...]
    batch: int
    seed: int
    window: int = SORT_WINDOW
    """Rows are sorted by length within this many batches; 1 makes each batch a random sample."""

    def __call__(self, step: int) -> Rows:
        """The rows of step number `step`; every row comes once in each epoch."""
        epoch, place = divmod(step, self.steps_per_epoch)
        return epoch_batches(self, epoch)[place]

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every row was used once."""
        return -(-len(self.lengths) // self.batch)


def make_batch_order(
    rows: Sequence[Sequence[int]], batch: int, seed: int, *, window: int = SORT_WINDOW
) -> BatchOrder:
    """The order in which these token rows are trained on."""
    return BatchOrder(tuple(map(len, rows)), batch, seed, window)


@lru_cache(maxsize=4)
def epoch_batches(order: BatchOrder, epoch: int) -> tuple[Rows, ...]:
    """The batches of an epoch, in training order."""
    rng = np.random.default_rng([order.seed, epoch])
    shuffled = rng.permutation(len(order.lengths))
    lengths = np.asarray(order.lengths)[shuffled]
    jittered = lengths * (1 + LENGTH_JITTER * rng.uniform(-1, 1, len(shuffled)))
    window = np.arange(len(shuffled)) // (order.batch * order.window)
    ordered = shuffled[np.lexsort((jittered, window))]
    batches = [ordered[i : i + order.batch] for i in range(0, len(ordered), order.batch)]
    return tuple(batches[i] for i in rng.permutation(len(batches)))
