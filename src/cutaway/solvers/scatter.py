"""Scatter matrices of many overlapping sets of rows.

Folds and repeats have nearly the same training rows. The scatter of a fold is that of all rows
minus that of the few held-out rows, so ten folds cost little more than one.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from cutaway.solvers.rows import RowBlocks

# Elements of the matrices in memory at once: 512 MB of float64.
MAX_MATRIX_ELEMENTS = 64_000_000
# No d x d matrix is computed for wider features.
MAX_SCATTER_WIDTH = 4096


def memory_slices(count: int, each: int) -> Iterator[slice]:
    """Slices of `count` items that fit into memory, when each needs `each` elements."""
    size = max(1, MAX_MATRIX_ELEMENTS // max(each, 1))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def folds_by_shape(
    folds: Bool[Tensor, "fold n"], d: int, *, each: int = 0
) -> Iterator[tuple[list[int], bool]]:
    """Fold numbers in groups that fit into memory, and whether those have at least d rows.

    A fold needs a few d x d matrices and `each` further elements.
    """
    tall = (folds.sum(1) >= d) & (d <= MAX_SCATTER_WIDTH)
    for kind in (True, False):
        numbers = (tall == kind).nonzero()[:, 0].tolist()
        for group in memory_slices(len(numbers), 3 * min(d, folds.shape[1]) * d + each):
            yield numbers[group], kind


def fold_scatters(
    rows: RowBlocks, folds: Bool[Tensor, "fold n"], *, total: Shaped[Tensor, "d d"] | None = None
) -> Float[Tensor, "fold d d"]:
    """Sum of x x^T over each fold's rows, in float64, in one pass.

    `total` is the sum over all rows, if it is already known.
    """
    # If a fold has most of the rows, the others are summed and subtracted from the total.
    less = folds.sum(1) * 2 > rows.n
    counted = folds ^ less[:, None].to(folds.device)
    made = torch.zeros(len(folds), rows.d, rows.d, dtype=torch.float64, device=rows.device)
    summed = torch.zeros_like(made[0])
    for index, block in rows:
        double = block.double()
        if total is None:
            summed.addmm_(double.T, double)
        for matrix, marks in zip(made, counted[:, index].to(rows.device), strict=True):
            some = double[marks]
            matrix.addmm_(some.T, some)
    return torch.where(
        less[:, None, None].to(rows.device), (summed if total is None else total) - made, made
    )
