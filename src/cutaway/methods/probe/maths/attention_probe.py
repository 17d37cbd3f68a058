"""Token vectors of texts of many lengths, and a probe that learns which of them to look at."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from cutaway.core.errors import Mismatch


@dataclass(frozen=True, eq=False)
class RaggedTokens:
    """All token vectors in one matrix; text i has the rows offsets[i] to offsets[i + 1]."""

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
        """How many texts."""
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
    """One learned query weighs the tokens of a text, one linear layer reads their mean.

    The query starts at 0, so the probe starts as mean pooling.
    """

    def __init__(self, d: int, outputs: int) -> None:
        """A probe of `d` features and so many outputs."""
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
        """How much each token counts; adds up to 1 over every text."""
        owner, n = texts.owner, len(texts)
        match = texts.values @ self.query / texts.values.shape[1] ** 0.5
        top = match.new_full((n,), -torch.inf).scatter_reduce(0, owner, match.detach(), "amax")
        raised = torch.exp(match - top[owner])
        return raised / match.new_zeros(n).index_add(0, owner, raised)[owner]
