"""Minimum description length of the labels given the features: the online (prequential) code.

Sender and receiver train the same probe on the labels sent so far and encode the next ones with
its probabilities (Voita and Titov 2020, "Information-Theoretic Probing with Minimum Description
Length"; Blier and Ollivier 2018). The first block uses the uniform code. Labels that can be
learned from few rows are cheap, which the final accuracy does not show.

The code is compared with the prior code, which knows how frequent each class is and nothing else:
features that say nothing give a code that is no shorter than that one, however unequal the classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.solvers.logistic import C_GRID, LogisticPath, logistic_path
from cutaway.solvers.rows import RowBlocks, as_row_blocks

# Fractions of the rows after which the probe is trained again, each about twice the last.
BLOCK_FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
# The smallest number of rows to train a probe on.
MIN_ROWS = 8


@dataclass(frozen=True)
class CodeLength:
    """The code length of the labels in bits, in total and block by block."""

    bits: float
    prior_bits: float
    """Without features, given the class frequencies of these rows: n times their entropy."""
    uniform_bits: float
    """Without features or frequencies: n log2(classes)."""
    sizes: tuple[int, ...]
    """Rows sent before each trained block, then the number of all rows."""
    block_bits: tuple[float, ...]
    """Of the first block (uniform code), then of each trained one."""
    strengths: tuple[float, ...]
    """The C used for each trained block."""

    @property
    def compression(self) -> float:
        """The prior code length divided by the code length; at most 1 for useless features."""
        return self.prior_bits / self.bits


def code_length(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: NDArray[Any],
    *,
    classes: int,
    seed: int,
    strengths: Sequence[float] = C_GRID,
    shares: Sequence[float] = BLOCK_FRACTIONS,
    chosen_rows: NDArray[Any] | None = None,
) -> CodeLength:
    """The online code of class numbers (n,) or of 0/1 labels (n, cls), given the features.

    Only the labels of `chosen_rows` are sent, if given; the others are not used.

    Every (size, C) is fitted at once. The C of a block is the one with the shortest code of the
    blocks before it, so no label is used before it is sent.
    """
    rows = as_row_blocks(x)
    used = np.arange(rows.n) if chosen_rows is None else np.sort(np.asarray(chosen_rows))
    n = len(used)
    order = used[np.argsort(np.random.default_rng(seed).random(n), kind="stable")]
    sizes = _block_sizes(np.asarray(y)[order], shares, classes)
    rank = np.full(rows.n, n, dtype=np.int64)
    rank[order] = np.arange(n)
    known = torch.from_numpy(rank[None] < np.asarray(sizes[:-1])[:, None])
    labels = torch.from_numpy(np.asarray(y, dtype=np.int64))
    many = labels.ndim == 2
    path = logistic_path(
        rows, labels, strengths=strengths, folds=known, classes=2 if many else classes
    )
    place = np.searchsorted(np.asarray(sizes), rank, side="right") - 1
    block = torch.from_numpy(np.where(rank < n, place, -1))
    costs = _block_bits(path, rows, labels, block, sizes)
    chosen = _choose_c(costs, np.asarray(strengths))
    trained = [float(costs[k, c]) for k, c in enumerate(chosen)]
    each = labels.shape[1] * 1.0 if many else float(np.log2(classes))
    first = sizes[0] * each
    return CodeLength(
        first + sum(trained),
        _prior_bits(np.asarray(y)[used]),
        n * each,
        tuple(sizes),
        (first, *trained),
        tuple(float(strengths[c]) for c in chosen),
    )


def _prior_bits(labels: NDArray[Any]) -> float:
    """The bits of all labels, each coded by the frequency of its class."""
    if labels.ndim == 2:
        return sum(_prior_bits(column) for column in labels.T)
    _, counts = np.unique(labels, return_counts=True)
    return float(-(counts * np.log2(counts / len(labels))).sum())


def _block_sizes(labels: NDArray[Any], shares: Sequence[float], classes: int) -> list[int]:
    """Rows sent before each block; the first block has at least two classes."""
    n = len(labels)
    if n < 2 * MIN_ROWS:
        raise BadData(f"An online code needs at least {2 * MIN_ROWS} rows, got {n}.")
    least = MIN_ROWS
    if labels.ndim == 1:
        differ = np.flatnonzero(labels != labels[0])
        if len(differ) == 0 or int(differ[0]) + 1 >= n:
            raise BadData("An online code needs rows of two classes, got one.")
        least = max(MIN_ROWS, int(differ[0]) + 1)
    sizes = sorted({max(least, round(share * n)) for share in shares if share < 1.0})
    return [size for size in sizes if size < n] + [n]


def _block_bits(
    path: LogisticPath, rows: RowBlocks, y: Tensor, block: Tensor, sizes: Sequence[int]
) -> Float[np.ndarray, "block c"]:
    """The bits of each trained block under each C."""
    total = torch.zeros(len(sizes) - 1, len(path.strengths), dtype=torch.float64)
    for index, values in rows:
        own = block[index]
        for k in own[own >= 0].unique().tolist():
            mine = own == k
            logits = path.logits(values[mine.to(values.device)])[k].cpu().double()
            total[k] += _label_bits(logits, y[index][mine], sizes[k])
    return total.numpy()


def _label_bits(logits: Float[Tensor, "c n cls"], y: Tensor, known: int) -> Float[Tensor, " c"]:
    """The code lengths of labels, mixed with a little of the uniform code to stay finite."""
    if y.ndim == 2 or logits.shape[-1] == 1:
        truth = (y if y.ndim == 2 else y[:, None]).bool()
        right = torch.sigmoid(torch.where(truth, logits, -logits))
        kinds = 2
    else:
        right = torch.softmax(logits, -1).gather(-1, y[None, :, None].expand(len(logits), -1, 1))
        kinds = logits.shape[-1]
    share = 1.0 / (known + 1)
    return -torch.log2((1.0 - share) * right + share / kinds).sum((1, 2))


def _choose_c(costs: NDArray[np.float64], strengths: NDArray[np.float64]) -> list[int]:
    """The C of each block: the best one so far; for the first block the middle of the range."""
    before = np.cumsum(costs, axis=0) - costs
    return [len(strengths) // 2 if k == 0 else int(row.argmin()) for k, row in enumerate(before)]
