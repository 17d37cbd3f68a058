"""Windows of one long text become one vector again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.extract.token_rows import TokenRows

CombineRule = Callable[[Tensor, Tensor], Tensor]

# pooler -> (windows d), (tokens that count per window) -> d
COMBINE: dict[str, CombineRule] = {
    "mean": lambda values, weights: (values * weights[:, None]).sum(0) / weights.sum(),
    "max": lambda values, weights: values.amax(0),
    "min": lambda values, weights: values.amin(0),
    "last": lambda values, weights: values[-1],
    "first": lambda values, weights: values[0],
    "cls": lambda values, weights: values[0],
}


def need_window_poolers(pools: tuple[str, ...]) -> None:
    """BadSpec unless every pooler has a meaning over several windows."""
    odd = [pool for pool in pools if pool not in COMBINE]
    if odd:
        raise BadSpec(
            f"Pooler {odd[0]!r} has no meaning over sliding windows. "
            f"Allowed with a window: {', '.join(COMBINE)}."
        )


@dataclass
class WindowCombiner:
    """Collects a text's windows until all are there, then hands one row on to `sink`."""

    fed: TokenRows
    sink: Callable[[NDArray[np.int64], Mapping[str, Tensor]], None]
    _parts: dict[int, dict[int, dict[str, Tensor]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count = np.bincount(self.fed.text_index)
        lengths = np.array(self.fed.lengths)
        self._weight = torch.as_tensor(lengths - self.fed.first_counted, dtype=torch.float64)

    def __call__(self, rows: NDArray[np.int64], columns: Mapping[str, Tensor]) -> None:
        """Take a batch of windows; pass on the texts that are complete now."""
        done = []
        for place, row in enumerate(rows.tolist()):
            owner = int(self.fed.text_index[row])
            parts = self._parts.setdefault(owner, {})
            parts[row] = {name: value[place] for name, value in columns.items()}
            if len(parts) == self._count[owner]:
                done.append(owner)
        if done:
            names = list(columns)
            self.sink(
                np.array(done), {n: torch.stack([self._one(o, n) for o in done]) for n in names}
            )
            for owner in done:
                del self._parts[owner]

    def _one(self, owner: int, column: str) -> Tensor:
        rows = sorted(self._parts[owner])
        values = torch.stack([self._parts[owner][row][column] for row in rows])
        combine = COMBINE[column.partition("/")[2]]
        return combine(values.double(), self._weight[rows]).to(values.dtype)
