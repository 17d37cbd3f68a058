"""Features of the next-word distribution p: Phi p, projections, log-partitions, word scores.

`f` (n, e) is the state that the output embedding is applied to. p = softmax(head(f)) is a function
of f, so it is computed block by block whenever it is needed, and never stored: memory is
O(block x vocab).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec

# Values in one block of p: 64 MB of float32, enough rows for fast matrix products.
BLOCK_ELEMENTS = 16_000_000


@dataclass(frozen=True, eq=False)
class OutputHead:
    """The output layer of a language model: logits = transform(Phi f + bias)."""

    phi: Float[Tensor, "vocab e"]
    bias: Float[Tensor, " vocab"] | None = None
    transform: Callable[[Tensor], Tensor] | None = None
    """Applied to the logits (a soft cap, a factor); None in most families."""

    @property
    def vocab(self) -> int:
        """The number of tokens."""
        return len(self.phi)

    def __call__(
        self, f: Float[Tensor, "rows e"], out: Float[Tensor, "rows vocab"] | None = None
    ) -> Float[Tensor, "rows vocab"]:
        """The logits of some rows, as a new tensor or written into `out`."""
        return self._logits(f, self.phi, self.bias, out)

    def at(self, f: Float[Tensor, "rows e"], ids: Sequence[int]) -> Float[Tensor, "rows words"]:
        """The logits of some tokens only."""
        index = torch.as_tensor(list(ids), dtype=torch.long, device=self.phi.device)
        return self._logits(f, self.phi[index], None if self.bias is None else self.bias[index])

    def _logits(
        self, f: Tensor, phi: Tensor, bias: Tensor | None, out: Tensor | None = None
    ) -> Tensor:
        logits = torch.mm(f, phi.T, out=out)
        if bias is not None:
            logits += bias
        return logits if self.transform is None else self.transform(logits)


@dataclass(frozen=True, eq=False)
class Expectations:
    """Expectations under p of some maps over the vocabulary, and log-partitions."""

    values: dict[str, Float[Tensor, "n _"]]
    logz: Float[Tensor, " n"]


def vocab_blocks(n: int, vocab: int) -> Iterator[slice]:
    """Row ranges whose distributions fit into memory."""
    size = max(16, BLOCK_ELEMENTS // max(vocab, 1))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def next_token_probs(f: Float[Tensor, "rows e"], head: OutputHead) -> Float[Tensor, "rows vocab"]:
    """p of some rows: the softmax of the logits, computed in place."""
    logits = head(f)
    logits.sub_(logits.amax(dim=1, keepdim=True)).exp_()
    return logits.div_(logits.sum(dim=1, keepdim=True))


def expectations(
    f: Float[Tensor, "n e"],
    head: OutputHead,
    maps: Mapping[str, Float[Tensor, "vocab _"]],
    *,
    done: Callable[[int], None] = lambda rows: None,
) -> Expectations:
    """p M for every map M, and the log-sum-exp of the logits, in one pass over p.

    With M = Phi that is the conditional mean embedding Phi^T p. `done` is called with the number
    of rows processed.
    """
    values = {name: f.new_empty(len(f), m.shape[1]) for name, m in maps.items()}
    logz = f.new_empty(len(f))
    scratch = f.new_empty(0)
    for rows in vocab_blocks(len(f), head.vocab):
        count = rows.stop - rows.start
        if len(scratch) != count:
            # One buffer for all blocks: allocating memory of this size is slow.
            scratch = f.new_empty(count, head.vocab)
        logits = head(f[rows], scratch)
        top = logits.amax(dim=1, keepdim=True)
        raw = logits.sub_(top).exp_()
        total = raw.sum(dim=1, keepdim=True)
        for name, matrix in maps.items():
            # Dividing the product is cheaper than dividing the distribution.
            torch.mm(raw, matrix, out=values[name][rows])
            values[name][rows] /= total
        logz[rows] = (top + total.log())[:, 0]
        done(count)
    return Expectations(values, logz)


def random_projection(
    width: int, vocab: int, *, seed: int, like: Float[Tensor, "..."]
) -> Float[Tensor, "vocab width"]:
    """A random matrix with `width` orthonormal columns over the vocabulary."""
    if width > vocab:
        raise BadSpec(
            f"A projection to {width} dimensions needs at least as many tokens, got {vocab}."
        )
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randn(vocab, width, generator=rng, dtype=like.dtype).to(like.device)
    orthonormal: Tensor = torch.linalg.qr(drawn).Q
    return orthonormal


def word_features(
    logits: Float[Tensor, "n words"], logz: Float[Tensor, " n"], kind: str
) -> Float[Tensor, "n words"]:
    """The logits, or the tokens' probabilities under p."""
    if kind not in ("logits", "probs"):
        raise BadSpec(f"kind must be logits or probs, got {kind!r}.")
    return logits if kind == "logits" else (logits - logz[:, None]).exp()
