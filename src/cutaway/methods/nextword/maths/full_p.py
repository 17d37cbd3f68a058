"""Classifiers on the full next-word distribution p, with only f in memory.

p (n, vocab) would take 24 GB for AG News with gpt2. It is a function of f, so blocks of it are
computed again whenever the solver needs them. There are two solvers of the same objective:

- `stream`: L-BFGS over weights (vocab, cls); each evaluation is a pass over f. Any number of rows.
- `gram`: with fewer rows than tokens the weights are in the span of the rows, so p is replaced by
  its coordinates there (from its Gram matrix), and the search needs no further passes.

p is centred and divided by one number that makes its total variance the width of f, so that a C
means the same for p and for the standardised f. Standardising each token separately would give the
rarest tokens as much weight as the informative ones.
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
from cutaway.solvers.rows import RowBlocks

# Rows whose Gram matrix and its eigenvectors fit into memory: 8,192^2 float64 is 0.5 GB.
MAX_GRAM_ROWS = 8192
# Rows of p for the preconditioner of the streaming solver: 400 MB for 50,000 tokens.
PRECONDITIONER_ROWS = 256
RowCallback = Callable[[int], None]
"""Called with the number of rows that were just processed."""


@dataclass(frozen=True, eq=False)
class DistributionStats:
    """The mean of p over some rows, and the number p is divided by."""

    mean: Float[Tensor, " vocab"]
    scale: float


def distribution_stats(f: Float[Tensor, "n e"], head: OutputHead) -> DistributionStats:
    """The mean of p, and the scale that makes its total variance e, in one pass."""
    total = torch.zeros(head.vocab, dtype=torch.float64, device=f.device)
    square = 0.0
    for rows in vocab_blocks(len(f), head.vocab):
        p = next_token_probs(f[rows], head)
        total += p.sum(dim=0, dtype=torch.float64)
        square += float(torch.linalg.vector_norm(p.flatten()).double().square())
    mean = total / len(f)
    variance = max(square / len(f) - float(mean @ mean), 1e-30)
    return DistributionStats(mean, float(np.sqrt(variance / f.shape[1])))


def probability_std(f: Float[Tensor, "n e"], head: OutputHead) -> Float[Tensor, " vocab"]:
    """The standard deviation of each token's probability over the rows, in one pass."""
    first, second = torch.zeros(2, head.vocab, dtype=torch.float64)
    for rows in vocab_blocks(len(f), head.vocab):
        p = next_token_probs(f[rows], head)
        first += p.sum(dim=0, dtype=torch.float64)
        second += p.square_().sum(dim=0, dtype=torch.float64)
    variance: Tensor = second / len(f) - (first / len(f)).square()
    return variance.clamp_min(0.0).sqrt()


def fit_p(
    f: Float[Tensor, "n e"],
    head: OutputHead,
    y: NDArray[np.int64],
    trains: Sequence[NDArray[np.int64]],
    settings: ClassifierSettings,
    *,
    solver: str = "auto",
    done: RowCallback = lambda rows: None,
) -> list[LinearClassifier]:
    """One classifier on p per set of training rows; its weights (out, vocab) are for unscaled p."""
    used = np.unique(np.concatenate(list(trains)))
    new_index = np.full(len(y), -1, dtype=np.int64)
    new_index[used] = np.arange(len(used))
    # No copy of f when all rows are used.
    rows = f if len(used) == len(f) else f[torch.from_numpy(used)]
    name = solver if solver != "auto" else choose_p_solver(len(used), head.vocab)
    if name not in P_SOLVERS:
        raise BadSpec(f"solver must be auto, {' or '.join(P_SOLVERS)}, got {solver!r}.")
    settings, stats = replace(settings, standardise=False), distribution_stats(rows, head)
    splits = [new_index[train] for train in trains]
    return P_SOLVERS[name](rows, head, y[used], splits, settings, stats, done)


def choose_p_solver(rows: int, vocab: int) -> str:
    """`gram` while the Gram matrix of the rows fits into memory, else `stream`."""
    return "gram" if rows <= MAX_GRAM_ROWS and rows < vocab else "stream"


def classifier_logits(
    fits: Sequence[LinearClassifier], f: Float[Tensor, "n e"], head: OutputHead
) -> Float[Tensor, "n fit out"]:
    """The logits of every classifier, in one pass over p."""
    weights = torch.cat([fit.weights for fit in fits]).to(f)
    bias = torch.cat([fit.intercept for fit in fits])
    logits = torch.empty(len(f), len(bias), dtype=torch.float64, device=f.device)
    for rows in vocab_blocks(len(f), head.vocab):
        logits[rows] = (next_token_probs(f[rows], head) @ weights.T).double() + bias
    return logits.view(len(f), len(fits), -1)


def _fit_streaming(
    f: Tensor, head: OutputHead, y: NDArray[np.int64], splits: Sequence[NDArray[np.int64]],
    settings: ClassifierSettings, stats: DistributionStats, done: RowCallback,
) -> list[LinearClassifier]:  # fmt: skip
    def blocks() -> Iterator[Tensor]:
        for rows in vocab_blocks(len(f), head.vocab):
            yield next_token_probs(f[rows], head).div_(stats.scale)
            done(rows.stop - rows.start)

    rows = RowBlocks(blocks, len(f), head.vocab, f.dtype, f.device)
    settings = replace(settings, directions=settings.directions or PRECONDITIONER_ROWS)
    fits = fit_logistic_cv(rows, y, splits, settings)
    return [replace(fit, weights=fit.weights / stats.scale) for fit in fits]


def _fit_gram(
    f: Tensor, head: OutputHead, y: NDArray[np.int64], splits: Sequence[NDArray[np.int64]],
    settings: ClassifierSettings, stats: DistributionStats, done: RowCallback,
) -> list[LinearClassifier]:  # fmt: skip
    values, vectors = _gram_eigenvectors(gram_matrix(f, head, stats, done=done), f.dtype)
    fits = fit_logistic_cv(vectors * values.sqrt(), y, splits, settings)
    dual = [(vectors / values.sqrt()) @ fit.weights.T for fit in fits]
    weights = _token_weights(f, head, stats, torch.cat(dual, dim=1))
    return [
        replace(fit, weights=own, intercept=fit.intercept - own @ stats.mean)
        for fit, own in zip(fits, weights.T.split(dual[0].shape[1]), strict=True)
    ]


def gram_matrix(
    f: Float[Tensor, "n e"],
    head: OutputHead,
    stats: DistributionStats,
    *,
    done: RowCallback = lambda rows: None,
) -> Float[Tensor, "n n"]:
    """The Gram matrix of the centred, scaled p, with two blocks of p in memory at a time."""
    n = len(f)
    gram = torch.empty(n, n, dtype=torch.float64, device=f.device)
    for first in list(vocab_blocks(n, max(1, head.vocab // 4))):
        left = next_token_probs(f[first], head)
        for second in vocab_blocks(first.stop, head.vocab):
            block = (left @ next_token_probs(f[second], head).T).double()
            gram[first, second], gram[second, first] = block, block.T
        done(first.stop - first.start)
    # (p - m)(q - m) from p q: the products with the mean are means of the products.
    level = gram.mean(dim=1)
    gram.sub_(level[:, None]).sub_(level[None, :]).add_(level.mean())
    return gram.div_(stats.scale**2)


def _gram_eigenvectors(gram: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, without those that are rounding errors of p."""
    values, vectors = torch.linalg.eigh(gram)
    used = values > 0.1 * torch.finfo(dtype).eps * values[-1].clamp_min(1e-300)
    return values[used], vectors[:, used]


def _token_weights(
    f: Tensor, head: OutputHead, stats: DistributionStats, dual: Float[Tensor, "n out"]
) -> Float[Tensor, "vocab out"]:
    """Weights of tokens from weights of rows: (p - mean)^T dual / scale^2."""
    weights = torch.zeros(head.vocab, dual.shape[1], dtype=torch.float64, device=f.device)
    for rows in vocab_blocks(len(f), head.vocab):
        weights += (next_token_probs(f[rows], head).T @ dual[rows].to(f.dtype)).double()
    weights -= torch.outer(stats.mean, dual.sum(dim=0))
    return weights / stats.scale**2


P_SOLVERS: dict[str, Callable[..., list[LinearClassifier]]] = {
    "gram": _fit_gram,
    "stream": _fit_streaming,
}
