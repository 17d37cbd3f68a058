"""Classifiers on the whole next-word distribution p, with only f in memory.

p (n, vocab) would be 24 GB for AG News with gpt2. It is a function of f, so blocks of it are made
anew each time the solver looks at them. Two ways, same objective:

- `stream`: L-BFGS over weights (vocab, cls), every look at p a pass over f. Any number of rows.
- `inside`: with fewer rows than words the weights lie in the span of the rows, so p is turned
  once into its coordinates there (through its Gram matrix), and the search costs no more looks.

p is centred and divided by one number, so that its total variance is the width of f: a C then
means the same for p and for the standardised f. Scaling each word by itself would make the rarest
words as loud as the telling ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.maths.classify import (
    ClassifierSettings,
    LinearClassifier,
    fit_logistic_cv,
)
from cutaway.methods.nextword.maths.readout import OutputHead, next_token_probs, vocab_blocks
from cutaway.solvers import RowBlocks

# Rows whose Gram matrix and its directions still fit: 8,192^2 float64 is 0.5 GB.
MAX_GRAM_ROWS = 8192
# Rows of p that make the streamed problem round: 400 MB for 50,000 words.
PRECONDITIONER_ROWS = 256
RowCallback = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class DistributionStats:
    """The mean of p over some rows, and the number it is divided by."""

    mean: Float[Tensor, " vocab"]
    scale: float


def distribution_stats(
    f: Float[Tensor, "n e"], output: OutputHead, *, done: RowCallback = lambda rows: None
) -> DistributionStats:
    """One look at p: its mean, and the scale that gives it the total variance e."""
    total = torch.zeros(output.vocab, dtype=torch.float64, device=f.device)
    square = 0.0
    for rows in vocab_blocks(len(f), output.vocab):
        p = next_token_probs(f[rows], output)
        total += p.sum(dim=0, dtype=torch.float64)
        square += float(torch.linalg.vector_norm(p.flatten()).double().square())
        done(rows.stop - rows.start)
    mean = total / len(f)
    variance = max(square / len(f) - float(mean @ mean), 1e-30)
    return DistributionStats(mean, float(np.sqrt(variance / f.shape[1])))


def fit_p(
    f: Float[Tensor, "n e"],
    output: OutputHead,
    y: NDArray[np.int64],
    trains: Sequence[NDArray[np.int64]],
    plan: ClassifierSettings,
    *,
    way: str = "auto",
    done: RowCallback = lambda rows: None,
) -> list[LinearClassifier]:
    """One classifier on p per set of training rows; weights are for p as it is (out, vocab)."""
    used = np.unique(np.concatenate(list(trains)))
    place = np.full(len(y), -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    # A copy only where there are rows that nobody learns from.
    mine = f if len(used) == len(f) else f[torch.from_numpy(used)]
    own, parts = y[used], [place[rows] for rows in trains]
    chosen = way if way != "auto" else choose_p_solver(len(used), output.vocab)
    if chosen not in P_SOLVERS:
        raise BadSpec(f"way must be auto, {' or '.join(P_SOLVERS)}, got {way!r}.")
    plan = replace(plan, standardise=False)
    return P_SOLVERS[chosen](mine, output, own, parts, plan, distribution_stats(mine, output), done)


def choose_p_solver(rows: int, vocab: int) -> str:
    """`inside` while the Gram matrix of the rows fits, `stream` beyond."""
    return "inside" if rows <= MAX_GRAM_ROWS and rows < vocab else "stream"


def classifier_logits(
    fits: Sequence[LinearClassifier], f: Float[Tensor, "n e"], output: OutputHead
) -> Float[Tensor, "n fit_logistic_cv out"]:
    """The logits of every classifier for these rows, in one look at p."""
    weights = torch.cat([one.weights for one in fits]).to(f)
    bias = torch.cat([one.intercept for one in fits])
    made = torch.empty(len(f), len(bias), dtype=torch.float64, device=f.device)
    for rows in vocab_blocks(len(f), output.vocab):
        made[rows] = (next_token_probs(f[rows], output) @ weights.T).double() + bias
    return made.view(len(f), len(fits), -1)


def _fit_streaming(
    f: Tensor, output: OutputHead, y: NDArray[np.int64], parts: Sequence[NDArray[np.int64]],
    plan: ClassifierSettings, known: DistributionStats, done: RowCallback,
) -> list[LinearClassifier]:  # fmt: skip
    def blocks() -> Iterator[Tensor]:
        for rows in vocab_blocks(len(f), output.vocab):
            yield next_token_probs(f[rows], output).div_(known.scale)
            done(rows.stop - rows.start)

    rows = RowBlocks(blocks, len(f), output.vocab, f.dtype, f.device)
    found = fit_logistic_cv(
        rows, y, parts, replace(plan, directions=plan.directions or PRECONDITIONER_ROWS)
    )
    return [replace(one, weights=one.weights / known.scale) for one in found]


def _fit_gram(
    f: Tensor, output: OutputHead, y: NDArray[np.int64], parts: Sequence[NDArray[np.int64]],
    plan: ClassifierSettings, known: DistributionStats, done: RowCallback,
) -> list[LinearClassifier]:  # fmt: skip
    values, vectors = _gram_eigenvectors(gram_matrix(f, output, known, done=done), f.dtype)
    found = fit_logistic_cv(vectors * values.sqrt(), y, parts, plan)
    alphas = [(vectors / values.sqrt()) @ one.weights.T for one in found]
    weights = _token_weights(f, output, known, torch.cat(alphas, dim=1))
    made = []
    for one, mine in zip(found, weights.T.split(alphas[0].shape[1]), strict=True):
        bias = one.intercept - mine @ known.mean
        made.append(replace(one, weights=mine, intercept=bias))
    return made


def gram_matrix(
    f: Float[Tensor, "n e"],
    output: OutputHead,
    known: DistributionStats,
    *,
    done: RowCallback = lambda rows: None,
) -> Float[Tensor, "n n"]:
    """Products of the centred, scaled p of every two rows; only two blocks of p at a time."""
    n = len(f)
    made = torch.empty(n, n, dtype=torch.float64, device=f.device)
    wide = list(vocab_blocks(n, max(1, output.vocab // 4)))
    for first in wide:
        left = next_token_probs(f[first], output)
        for second in vocab_blocks(first.stop, output.vocab):
            piece = (left @ next_token_probs(f[second], output).T).double()
            made[first, second], made[second, first] = piece, piece.T
        done(first.stop - first.start)
    level = made.mean(dim=1)
    # (p - m)(q - m) from p q: the mean over all rows is known from the products themselves.
    made.sub_(level[:, None]).sub_(level[None, :]).add_(level.mean())
    return made.div_(known.scale**2)


def _gram_eigenvectors(products: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eigenvalues and vectors of the Gram matrix, without those that are rounding of p."""
    values, vectors = torch.linalg.eigh(products)
    used = values > 0.1 * torch.finfo(dtype).eps * values[-1].clamp_min(1e-300)
    return values[used], vectors[:, used]


def _token_weights(
    f: Tensor, output: OutputHead, known: DistributionStats, alphas: Float[Tensor, "n out"]
) -> Float[Tensor, "vocab out"]:
    """Weights over words from weights over rows: (p - m)^T alpha / scale^2."""
    made = torch.zeros(output.vocab, alphas.shape[1], dtype=torch.float64, device=f.device)
    for rows in vocab_blocks(len(f), output.vocab):
        made += (next_token_probs(f[rows], output).T @ alphas[rows].to(f.dtype)).double()
    made -= torch.outer(known.mean, alphas.sum(dim=0))
    return made / known.scale**2


P_SOLVERS: dict[str, Callable[..., list[LinearClassifier]]] = {
    "inside": _fit_gram,
    "stream": _fit_streaming,
}
