"""What the next-word distribution gives: Phi p, projections, the log-partition, words.

`f` (n, e) is the vector that meets the output embedding, `Output` what meets it. The distribution
p = softmax(output(f)) is a function of f, so it is made block by block wherever it is needed, and
never kept: memory is O(block x vocab).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec

# Numbers in one block of p: 64 MB of float32, enough rows for matrix products at full speed.
BLOCK_ELEMENTS = 16_000_000


@dataclass(frozen=True, eq=False)
class OutputHead:
    """The last map of a language model: logits = bend(Phi f + bias)."""

    phi: Float[Tensor, "vocab e"]
    bias: Float[Tensor, " vocab"] | None = None
    bend: Callable[[Tensor], Tensor] | None = None
    """What happens to each logit behind the map (a soft cap, a factor); none in most families."""

    @property
    def vocab(self) -> int:
        """How many tokens there are."""
        return len(self.phi)

    def __call__(
        self, f: Float[Tensor, "rows e"], out: Float[Tensor, "rows vocab"] | None = None
    ) -> Float[Tensor, "rows vocab"]:
        """All logits of some rows, as a new tensor or written over `out`."""
        return self._finished(f, self.phi, self.bias, out)

    def at(self, f: Float[Tensor, "rows e"], ids: Sequence[int]) -> Float[Tensor, "rows words"]:
        """The logits at some tokens only."""
        index = torch.as_tensor(list(ids), dtype=torch.long, device=self.phi.device)
        return self._finished(f, self.phi[index], None if self.bias is None else self.bias[index])

    def _finished(
        self, f: Tensor, phi: Tensor, bias: Tensor | None, out: Tensor | None = None
    ) -> Tensor:
        logits = torch.mm(f, phi.T, out=out)
        if bias is not None:
            logits += bias
        return logits if self.bend is None else self.bend(logits)


@dataclass(frozen=True, eq=False)
class Expectations:
    """Sums over the vocabulary weighted by p, one row per text, and log-partitions."""

    values: dict[str, Float[Tensor, "n _"]]
    logz: Float[Tensor, " n"]


def vocab_blocks(n: int, vocab: int) -> Iterator[slice]:
    """Row ranges whose distributions fit into memory at once."""
    size = max(16, BLOCK_ELEMENTS // max(vocab, 1))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def next_token_probs(f: Float[Tensor, "rows e"], output: OutputHead) -> Float[Tensor, "rows vocab"]:
    """p of these rows: softmax over the vocabulary, in place on the logits."""
    logits = output(f)
    logits.sub_(logits.amax(dim=1, keepdim=True)).exp_()
    return logits.div_(logits.sum(dim=1, keepdim=True))


def expectations(
    f: Float[Tensor, "n e"],
    output: OutputHead,
    maps: Mapping[str, Float[Tensor, "vocab _"]],
    *,
    done: Callable[[int], None] = lambda rows: None,
) -> Expectations:
    """For every map M the rows p M, and log sum exp of the logits; one look at p for all.

    With M = Phi that is the conditional-mean feature Phi^T p. `done` hears of finished rows.
    """
    values = {name: f.new_empty(len(f), m.shape[1]) for name, m in maps.items()}
    logz = f.new_empty(len(f))
    scratch = f.new_empty(0)
    for rows in vocab_blocks(len(f), output.vocab):
        count = rows.stop - rows.start
        if len(scratch) != count:
            # One buffer for all blocks: fresh memory of this size is given out page by page.
            scratch = f.new_empty(count, output.vocab)
        logits = output(f[rows], scratch)
        top = logits.amax(dim=1, keepdim=True)
        raw = logits.sub_(top).exp_()
        total = raw.sum(dim=1, keepdim=True)
        for name, matrix in maps.items():
            # Dividing the short product is cheaper than dividing the long distribution.
            torch.mm(raw, matrix, out=values[name][rows])
            values[name][rows] /= total
        logz[rows] = (top + total.log())[:, 0]
        done(count)
    return Expectations(values, logz)


def random_projection(
    rows: int, vocab: int, *, seed: int, like: Float[Tensor, "..."]
) -> Float[Tensor, "vocab rows"]:
    """A random matrix with `rows` orthonormal columns over the vocabulary (A transposed)."""
    if rows > vocab:
        raise BadSpec(f"A projection to {rows} numbers needs a vocabulary as large, got {vocab}.")
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randn(vocab, rows, generator=rng, dtype=like.dtype).to(like.device)
    made: Tensor = torch.linalg.qr(drawn).Q
    return made


def word_features(
    logits: Float[Tensor, "n words"], logz: Float[Tensor, " n"], kind: str
) -> Float[Tensor, "n words"]:
    """Logits as they are, or the words' probabilities among the whole vocabulary."""
    if kind not in ("logits", "probs"):
        raise BadSpec(f"kind must be logits or probs, got {kind!r}.")
    return logits if kind == "logits" else (logits - logz[:, None]).exp()
