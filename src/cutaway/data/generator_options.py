"""How much to generate."""

import numpy as np

from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec

MAX_GENERATED_ROWS = 1_000_000


def check_seed(seed: int) -> int:
    """The seed; BadSpec for one below 0."""
    if seed < 0:
        raise BadSpec(f"seed must be 0 or more, got {seed}.")
    return seed


def make_rng(seed: int) -> np.random.Generator:
    """Random numbers that the seed decides."""
    return np.random.default_rng(check_seed(seed))


class GeneratorOptions(Spec):
    """Rows by part, and the seed."""

    n: int = 2000
    """Rows in train."""
    dev: int | None = None
    """Rows in dev; a fifth of train unless given."""
    test: int | None = None
    """Rows in test; two fifths of train unless given."""
    seed: int = 0
    """Decides everything that is random."""

    def parts(self) -> dict[str, int]:
        """The rows of each part; BadSpec where there would be none."""
        dev = max(2, self.n // 5) if self.dev is None else self.dev
        test = max(2, self.n * 2 // 5) if self.test is None else self.test
        sizes = {"train": self.n, "dev": dev, "test": test}
        for part, size in sizes.items():
            if not 1 <= size <= MAX_GENERATED_ROWS:
                raise BadSpec(
                    f"gen: {part} must have 1 to {MAX_GENERATED_ROWS:,} rows, got {size}."
                )
        return sizes
