"""Long texts are read in windows; here the windows' vectors become one vector per text again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.extract.token_rows import TokenRows
from cutaway.extract.visitors import TOKEN_POOLS, RowSink
from cutaway.pool import POOLERS, WindowRule, pooler


def need_window_poolers(pools: Iterable[str]) -> None:
    """BadSpec unless every pooler has a window rule."""
    for name in pools:
        if name in TOKEN_POOLS or pooler(name).window_rule is None:
            able = ", ".join(row.name for row in POOLERS.values() if row.window_rule)
            raise BadSpec(
                f"Pooler {name!r} can't be used with sliding windows. Use one of: {able}."
            )


@dataclass
class WindowCombiner:
    """Collects the windows of each text and passes one row per complete text on to `sink`."""

    token_rows: TokenRows
    sink: RowSink
    _windows: dict[int, dict[int, dict[str, Tensor]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count = np.bincount(self.token_rows.text_index)
        counted = np.array(self.token_rows.lengths) - self.token_rows.first_counted
        self._tokens = torch.as_tensor(counted, dtype=torch.float64)

    def __call__(self, rows: NDArray[np.int64], columns: Mapping[str, Tensor]) -> None:
        """Take a batch of windows; pass on the texts that are complete now."""
        done = []
        for place, row in enumerate(rows.tolist()):
            text = int(self.token_rows.text_index[row])
            windows = self._windows.setdefault(text, {})
            windows[row] = {name: value[place] for name, value in columns.items()}
            if len(windows) == self._count[text]:
                done.append(text)
        if done:
            combined = {n: torch.stack([self._combine(t, n) for t in done]) for n in columns}
            self.sink(np.array(done), combined)
            for text in done:
                del self._windows[text]

    def _combine(self, text: int, column: str) -> Tensor:
        rows = sorted(self._windows[text])
        values = torch.stack([self._windows[text][row][column] for row in rows])
        rule: WindowRule | None = pooler(column.partition("/")[2]).window_rule
        assert rule is not None
        return rule(values.double(), self._tokens[rows]).to(values.dtype)
