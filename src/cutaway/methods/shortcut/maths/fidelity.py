"""r2 of maps between layers, accumulated batch by batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.core.float64 import to_float64
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.moments import StateKey, StatePair


def r2_per_coordinate(
    residual: Float[Tensor, " d"], spread: Float[Tensor, " d"]
) -> Float[Tensor, " d"]:
    """1 - residual / spread; for a constant coordinate 1 if predicted exactly, else 0."""
    constant = spread <= 1e-14 * spread.max()
    exact = (residual <= 1e-14 * spread.max()).to(residual.dtype)
    return torch.where(constant, exact, 1 - residual / torch.where(constant, 1, spread))


@dataclass
class StreamingR2:
    """Squared errors of maps, summed over batches; `r2` averages over coordinates."""

    rows: int = 0
    _errors: dict[tuple[str, StatePair], Tensor] = field(default_factory=dict)
    _sums: dict[StateKey, Tensor] = field(default_factory=dict)
    _squares: dict[StateKey, Tensor] = field(default_factory=dict)
    _origin: dict[StateKey, Tensor] = field(default_factory=dict)

    def add(
        self, batch: Mapping[Any, Float[Tensor, "m _"]], maps: Mapping[str, Mapping[Any, Shortcut]]
    ) -> None:
        """Add a batch of all layers; `maps` are given by kind (`mat`, `id`) and pair."""
        self.rows += len(next(iter(batch.values())))
        for target in dict.fromkeys(t for pairs in maps.values() for _, t in pairs):
            self._add_target(target, batch[target])
        for kind, pairs in maps.items():
            for (source, target), jump in pairs.items():
                error = jump(batch[source]) - batch[target]
                self._increase(self._errors, (kind, (source, target)), to_float64(error).square())

    def r2(self, kind: str, pair: StatePair) -> float:
        """The share of the target's variance that the map explains, averaged over coordinates."""
        if not self.rows:
            raise BadData("No rows to measure on: the held-out split is empty.")
        target = pair[1]
        spread = self._squares[target] - self._sums[target].square() / self.rows
        return float(r2_per_coordinate(self._errors[kind, pair], spread).mean())

    def all(self) -> dict[tuple[str, StatePair], float]:
        """Every r2 by kind and pair."""
        return {key: self.r2(*key) for key in self._errors}

    def state_dict(self) -> dict[str, Tensor]:
        """Named tensors of the sums, for `load_state_dict`."""
        named = {"rows": torch.tensor(self.rows)}
        named |= {f"error/{k}/{s}/{t}": value for (k, (s, t)), value in self._errors.items()}
        for name, table in self._tables().items():
            named |= {f"{name}/{target}": value for target, value in table.items()}
        return named

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state; layers are numbers."""
        self.rows = int(state["rows"])
        for name, value in state.items():
            table, *key = name.split("/")
            if table == "error":
                self._errors[key[0], (int(key[1]), int(key[2]))] = value
            elif key:
                self._tables()[table][int(key[0])] = value

    def _tables(self) -> dict[str, dict[StateKey, Tensor]]:
        return {"sum": self._sums, "square": self._squares, "origin": self._origin}

    def _add_target(self, target: StateKey, rows: Tensor) -> None:
        # Sums relative to the first batch's mean keep the digits of coordinates far from 0.
        origin = self._origin.setdefault(target, to_float64(rows).mean(dim=0))
        centred = to_float64(rows) - origin
        self._increase(self._sums, target, centred)
        self._increase(self._squares, target, centred.square())

    @staticmethod
    def _increase(table: dict, key: object, rows: Tensor) -> None:
        table[key] = table[key] + rows.sum(dim=0) if key in table else rows.sum(dim=0)
