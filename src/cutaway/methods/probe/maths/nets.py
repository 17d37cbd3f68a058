"""Networks to probe with: MLPs, gated units, attention over tokens, and a user's torch module."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from cutaway.core.errors import BadSpec, Mismatch


@dataclass(frozen=True, eq=False)
class RaggedTokens:
    """The token vectors of all texts; text i has the rows offsets[i] to offsets[i + 1]."""

    values: Shaped[Tensor, "token d"]
    offsets: Int[Tensor, " border"]

    def __post_init__(self) -> None:
        """Mismatch unless the offsets rise from 0 to the number of tokens."""
        ends = self.offsets[[0, -1]].tolist()
        if ends != [0, len(self.values)] or bool((self.offsets.diff() < 0).any()):
            raise Mismatch(
                f"Offsets must rise from 0 to {len(self.values)}, the number of token vectors; "
                f"they run from {ends[0]} to {ends[1]}."
            )

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.offsets) - 1

    @property
    def owner(self) -> Int[Tensor, " token"]:
        """The text that each token belongs to."""
        texts = torch.arange(len(self), device=self.offsets.device)
        return texts.repeat_interleave(self.offsets.diff())

    def take(self, index: Int[Tensor, " m"]) -> "RaggedTokens":
        """The chosen texts, in the chosen order."""
        start, count = self.offsets[:-1][index], self.offsets.diff()[index]
        offsets = torch.cat([count.new_zeros(1), count.cumsum(0)])
        inside = torch.arange(int(offsets[-1]), device=count.device)
        rows = inside + (start - offsets[:-1]).repeat_interleave(count)
        return RaggedTokens(self.values[rows], offsets)


class AttentionProbe(nn.Module):
    """Attention pooling with one learned query, followed by a linear layer.

    The query starts at 0, so the probe starts as mean pooling.
    """

    def __init__(self, d: int, outputs: int) -> None:
        """A probe from `d` features to `outputs` scores."""
        super().__init__()
        self.query = nn.Parameter(torch.zeros(d))
        self.read = nn.Linear(d, outputs)

    def forward(self, texts: RaggedTokens) -> Float[Tensor, "n out"]:
        """The scores of texts."""
        weight = self.weights(texts)
        pooled = texts.values.new_zeros(len(texts), texts.values.shape[1])
        out: Tensor = self.read(pooled.index_add(0, texts.owner, weight[:, None] * texts.values))
        return out

    def weights(self, texts: RaggedTokens) -> Float[Tensor, " token"]:
        """The attention weight of each token; they sum to 1 over every text."""
        owner, n = texts.owner, len(texts)
        match = texts.values @ self.query / texts.values.shape[1] ** 0.5
        top = match.new_full((n,), -torch.inf).scatter_reduce(0, owner, match.detach(), "amax")
        raised = torch.exp(match - top[owner])
        return raised / match.new_zeros(n).index_add(0, owner, raised)[owner]


NetFactory = Callable[[int, int], nn.Module]
"""(features, outputs) -> a new network."""
HIDDEN_WIDTH = 256


class GatedNet(nn.Module):
    """A gated linear unit (Dauphin et al. 2017) followed by a linear layer."""

    def __init__(self, d: int, outputs: int, gate: nn.Module) -> None:
        """A network from `d` features to `outputs` scores."""
        super().__init__()
        self.value, self.open = nn.Linear(d, HIDDEN_WIDTH), nn.Linear(d, HIDDEN_WIDTH)
        self.gate, self.read = gate, nn.Linear(HIDDEN_WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of rows."""
        out: Tensor = self.read(self.value(x) * self.gate(self.open(x)))
        return out


def mlp(depth: int) -> NetFactory:
    """Networks of `depth` linear layers with ReLU in between."""

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

    A class or factory may take the number of features, then the number of outputs.
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
