"""Options of generated text: rows per part, and the seed."""

import numpy as np

from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec

MAX_GENERATED_ROWS = 1_000_000


def check_seed(seed: int) -> int:
    """The seed; BadSpec if it is negative."""
    if seed < 0:
        raise BadSpec(f"seed must be 0 or more, got {seed}.")
    return seed


def make_rng(seed: int) -> np.random.Generator:
    """A random number generator with this seed."""
    return np.random.default_rng(check_seed(seed))


class GeneratorOptions(Spec):
    """Number of rows in each part, and the seed."""

    n: int = 2000
    """Rows in train."""
    dev: int | None = None
    """Rows in dev; by default a fifth of train."""
    test: int | None = None
    """Rows in test; by default two fifths of train."""
    seed: int = 0
    """Random seed."""

    def parts(self) -> dict[str, int]:
        """Number of rows in each part; BadSpec if one is out of range."""
        dev = max(2, self.n // 5) if self.dev is None else self.dev
        test = max(2, self.n * 2 // 5) if self.test is None else self.test
        sizes = {"train": self.n, "dev": dev, "test": test}
        for part, size in sizes.items():
            if not 1 <= size <= MAX_GENERATED_ROWS:
                raise BadSpec(
                    f"gen: {part} must have 1 to {MAX_GENERATED_ROWS:,} rows, got {size}."
                )
        return sizes
