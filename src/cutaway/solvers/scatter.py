"""Scatter matrices of many overlapping sets of rows from one matrix product per row.

Folds and repeats learn from nearly the same rows. The scatter of one is that of all rows less
that of the few it holds out, so ten folds cost little more than one.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from cutaway.solvers.rows import RowBlocks

# Numbers in the matrices held at once: 512 MB of float64.
MAX_MATRIX_ELEMENTS = 64_000_000
# Beyond this width no d x d matrix is made.
MAX_SCATTER_WIDTH = 4096


def memory_slices(count: int, each: int) -> Iterator[slice]:
    """Slices of `count` things, of which so many at a time fit that need `each` numbers."""
    size = max(1, MAX_MATRIX_ELEMENTS // max(each, 1))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def folds_by_shape(
    folds: Bool[Tensor, "fold n"], d: int, *, each: int = 0
) -> Iterator[tuple[list[int], bool]]:
    """Fold numbers in groups that fit into memory, and whether they have d rows at least.

    A fold needs a few d x d matrices, and `each` numbers besides.
    """
    tall = (folds.sum(1) >= d) & (d <= MAX_SCATTER_WIDTH)
    for kind in (True, False):
        numbers = (tall == kind).nonzero()[:, 0].tolist()
        for group in memory_slices(len(numbers), 3 * min(d, folds.shape[1]) * d + each):
            yield numbers[group], kind


def fold_scatters(
    rows: RowBlocks, folds: Bool[Tensor, "fold n"], *, whole: Shaped[Tensor, "d d"] | None = None
) -> Float[Tensor, "fold d d"]:
    """Sum of x x^T over each fold's rows, in float64, in one pass.

    `whole` is that sum over all rows, when it is known already.
    """
    # Rows left out are counted and taken away where they are the fewer.
    less = folds.sum(1) * 2 > rows.n
    counted = folds ^ less[:, None].to(folds.device)
    made = torch.zeros(len(folds), rows.d, rows.d, dtype=torch.float64, device=rows.device)
    total = torch.zeros_like(made[0])
    for index, block in rows:
        double = block.double()
        if whole is None:
            total.addmm_(double.T, double)
        for matrix, marks in zip(made, counted[:, index].to(rows.device), strict=True):
            some = double[marks]
            matrix.addmm_(some.T, some)
    return torch.where(
        less[:, None, None].to(rows.device), (total if whole is None else whole) - made, made
    )
