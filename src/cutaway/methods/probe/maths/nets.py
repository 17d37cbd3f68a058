"""Small networks to probe with: the table's own, and any torch module of a user."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from cutaway.core.errors import BadSpec

NetFactory = Callable[[int, int], nn.Module]
"""(features, outputs) -> a new network."""
HIDDEN_WIDTH = 256


class GatedNet(nn.Module):
    """A product of two linear maps, one through `gate`, read by a third (GLU; Dauphin 2017)."""

    def __init__(self, d: int, outputs: int, gate: nn.Module) -> None:
        """A gated network of `d` features and so many outputs."""
        super().__init__()
        self.value, self.open = nn.Linear(d, HIDDEN_WIDTH), nn.Linear(d, HIDDEN_WIDTH)
        self.gate, self.read = gate, nn.Linear(HIDDEN_WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of rows."""
        out: Tensor = self.read(self.value(x) * self.gate(self.open(x)))
        return out


def mlp(depth: int) -> NetFactory:
    """Networks of `depth` linear layers with ReLU between them."""

    def module(d: int, outputs: int) -> nn.Module:
        inner: list[nn.Module] = []
        for k in range(depth - 1):
            inner += [nn.Linear(d if k == 0 else HIDDEN_WIDTH, HIDDEN_WIDTH), nn.ReLU()]
        return nn.Sequential(*inner, nn.Linear(d if depth == 1 else HIDDEN_WIDTH, outputs))

    return module


def glu(gate: Callable[[], nn.Module]) -> NetFactory:
    """Gated networks with that gate."""
    return lambda d, outputs: GatedNet(d, outputs, gate())


def user_net(given: Any) -> NetFactory:
    """A user's module class, factory or instance as a factory; an instance is copied each time.

    A class or factory may need the number of features, and the number of outputs after it.
    """
    if isinstance(given, nn.Module):
        return lambda d, outputs: deepcopy(given)
    needed = [
        p
        for p in inspect.signature(given).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 2:
        raise BadSpec(
            f"{getattr(given, '__name__', given)!r} needs {len(needed)} arguments; a probe's "
            "module may need at most two, the number of features and of outputs. Bind the others."
        )
    return lambda d, outputs: given(*(d, outputs)[: len(needed)])
