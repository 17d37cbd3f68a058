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
from cutaway.methods.nextword.classify import Fit, Plan, fit
from cutaway.methods.nextword.readout import Output, blocks_of, distribution
from cutaway.methods.solvers import Rows

# Rows whose Gram matrix and its directions still fit: 8,192^2 float64 is 0.5 GB.
MOST_INSIDE = 8192
# Rows of p that make the streamed problem round: 400 MB for 50,000 words.
DIRECTIONS = 256
Done = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Spread:
    """The mean of p over some rows, and the number it is divided by."""

    mean: Float[Tensor, " vocab"]
    scale: float


def spread(f: Float[Tensor, "n e"], output: Output, *, done: Done = lambda rows: None) -> Spread:
    """One look at p: its mean, and the scale that gives it the total variance e."""
    total = torch.zeros(output.vocab, dtype=torch.float64, device=f.device)
    square = 0.0
    for rows in blocks_of(len(f), output.vocab):
        p = distribution(f[rows], output)
        total += p.sum(dim=0, dtype=torch.float64)
        square += float(torch.linalg.vector_norm(p.flatten()).double().square())
        done(rows.stop - rows.start)
    mean = total / len(f)
    variance = max(square / len(f) - float(mean @ mean), 1e-30)
    return Spread(mean, float(np.sqrt(variance / f.shape[1])))


def fit_p(
    f: Float[Tensor, "n e"],
    output: Output,
    y: NDArray[np.int64],
    trains: Sequence[NDArray[np.int64]],
    plan: Plan,
    *,
    way: str = "auto",
    done: Done = lambda rows: None,
) -> list[Fit]:
    """One classifier on p per set of training rows; weights are for p as it is (out, vocab)."""
    used = np.unique(np.concatenate(list(trains)))
    place = np.full(len(y), -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    # A copy only where there are rows that nobody learns from.
    mine = f if len(used) == len(f) else f[torch.from_numpy(used)]
    own, parts = y[used], [place[rows] for rows in trains]
    chosen = way if way != "auto" else way_for(len(used), output.vocab)
    if chosen not in WAYS:
        raise BadSpec(f"way must be auto, {' or '.join(WAYS)}, got {way!r}.")
    plan = replace(plan, standardise=False)
    return WAYS[chosen](mine, output, own, parts, plan, spread(mine, output), done)


def way_for(rows: int, vocab: int) -> str:
    """`inside` while the Gram matrix of the rows fits, `stream` beyond."""
    return "inside" if rows <= MOST_INSIDE and rows < vocab else "stream"


def scores(
    fits: Sequence[Fit], f: Float[Tensor, "n e"], output: Output
) -> Float[Tensor, "n fit out"]:
    """The logits of every classifier for these rows, in one look at p."""
    weights = torch.cat([one.weights for one in fits]).to(f)
    bias = torch.cat([one.intercept for one in fits])
    made = torch.empty(len(f), len(bias), dtype=torch.float64, device=f.device)
    for rows in blocks_of(len(f), output.vocab):
        made[rows] = (distribution(f[rows], output) @ weights.T).double() + bias
    return made.view(len(f), len(fits), -1)


def _stream(
    f: Tensor, output: Output, y: NDArray[np.int64], parts: Sequence[NDArray[np.int64]],
    plan: Plan, known: Spread, done: Done,
) -> list[Fit]:  # fmt: skip
    def blocks() -> Iterator[Tensor]:
        for rows in blocks_of(len(f), output.vocab):
            yield distribution(f[rows], output).div_(known.scale)
            done(rows.stop - rows.start)

    rows = Rows(blocks, len(f), output.vocab, f.dtype, f.device)
    found = fit(rows, y, parts, replace(plan, directions=plan.directions or DIRECTIONS))
    return [replace(one, weights=one.weights / known.scale) for one in found]


def _inside(
    f: Tensor, output: Output, y: NDArray[np.int64], parts: Sequence[NDArray[np.int64]],
    plan: Plan, known: Spread, done: Done,
) -> list[Fit]:  # fmt: skip
    values, vectors = _directions(gram(f, output, known, done=done), f.dtype)
    found = fit(vectors * values.sqrt(), y, parts, plan)
    alphas = [(vectors / values.sqrt()) @ one.weights.T for one in found]
    weights = _back(f, output, known, torch.cat(alphas, dim=1))
    made = []
    for one, mine in zip(found, weights.T.split(alphas[0].shape[1]), strict=True):
        bias = one.intercept - mine @ known.mean
        made.append(replace(one, weights=mine, intercept=bias))
    return made


def gram(
    f: Float[Tensor, "n e"], output: Output, known: Spread, *, done: Done = lambda rows: None
) -> Float[Tensor, "n n"]:
    """Products of the centred, scaled p of every two rows; only two blocks of p at a time."""
    n = len(f)
    made = torch.empty(n, n, dtype=torch.float64, device=f.device)
    wide = list(blocks_of(n, max(1, output.vocab // 4)))
    for first in wide:
        left = distribution(f[first], output)
        for second in blocks_of(first.stop, output.vocab):
            piece = (left @ distribution(f[second], output).T).double()
            made[first, second], made[second, first] = piece, piece.T
        done(first.stop - first.start)
    level = made.mean(dim=1)
    # (p - m)(q - m) from p q: the mean over all rows is known from the products themselves.
    made.sub_(level[:, None]).sub_(level[None, :]).add_(level.mean())
    return made.div_(known.scale**2)


def _directions(products: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Eigenvalues and vectors of the Gram matrix, without those that are rounding of p."""
    values, vectors = torch.linalg.eigh(products)
    used = values > 0.1 * torch.finfo(dtype).eps * values[-1].clamp_min(1e-300)
    return values[used], vectors[:, used]


def _back(
    f: Tensor, output: Output, known: Spread, alphas: Float[Tensor, "n out"]
) -> Float[Tensor, "vocab out"]:
    """Weights over words from weights over rows: (p - m)^T alpha / scale^2."""
    made = torch.zeros(output.vocab, alphas.shape[1], dtype=torch.float64, device=f.device)
    for rows in blocks_of(len(f), output.vocab):
        made += (distribution(f[rows], output).T @ alphas[rows].to(f.dtype)).double()
    made -= torch.outer(known.mean, alphas.sum(dim=0))
    return made / known.scale**2


WAYS: dict[str, Callable[..., list[Fit]]] = {"inside": _inside, "stream": _stream}
