"""Which positions of which texts are looked at: seeded, and the same on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec


@dataclass(frozen=True)
class Positions:
    """Row and token position of each example, and how many texts were too short to have one."""

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    skipped: int

    def __len__(self) -> int:
        """How many examples."""
        return len(self.rows)


def positions(
    free: Sequence[Sequence[int]], *, per_text: int = 1, rng: np.random.Generator
) -> Positions:
    """`per_text` random places of each text, drawn from its `free` ones, in order.

    A text with fewer free places gives all it has; one with none is skipped and counted.
    """
    if per_text < 1:
        raise BadSpec(f"positions_per_text must be at least 1, got {per_text!r}.")
    rows, places, skipped = [], [], 0
    for row, allowed in enumerate(free):
        # Drawn for every text, short or not, so that one text never shifts another's draw.
        order = np.random.default_rng(rng.integers(2**63)).permutation(len(allowed))
        chosen = sorted(allowed[i] for i in order[:per_text])
        skipped += not chosen
        rows += [row] * len(chosen)
        places += chosen
    if not rows:
        raise BadData(
            f"None of the {len(free)} texts has two tokens or more: a shortcut needs words to "
            "stand on. Give longer texts."
        )
    return Positions(np.array(rows, np.int64), np.array(places, np.int64), skipped)
