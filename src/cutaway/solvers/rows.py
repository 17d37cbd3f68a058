"""A feature matrix as blocks of rows, in memory or not; its moments, scatters and eigenvectors.

Solvers only iterate over blocks, several times. A tensor is split into blocks; a matrix larger than
memory is a callable that yields its blocks anew at each call.

Scatter matrices of folds: folds and repeats have nearly the same training rows. The scatter of a
fold is that of all rows minus that of its held-out rows, so ten folds cost little more than one.

Eigenvectors, for preconditioning logistic regression: the Hessian is X^T diag(p(1-p)) X + I/C. With
p(1-p) replaced by its mean c it is c X^T X + I/C, which one eigendecomposition inverts for all C,
folds and classes at once (Boehning 1992 bounds the Hessian that way, with c = 1/4). This removes
the conditioning of the features, outlier dimensions included; only the variation of p(1-p) between
rows remains.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from cutaway.core.errors import BadData, Mismatch

# Long enough for fast matrix products, short enough for the CPU cache.
BLOCK_ROWS = 2048
# A matrix up to this size is cast to the solver's dtype as a whole, not block by block.
MAX_CAST_BYTES = 384 << 20
# Elements of the matrices in memory at once: 512 MB of float64.
MAX_MATRIX_ELEMENTS = 64_000_000
# No d x d matrix is computed for wider features.
MAX_SCATTER_WIDTH = 4096
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """A matrix of `n` rows and `d` columns that is read block by block.

    Each call of `blocks` yields the blocks in row order. They may have any float dtype and are
    converted to `dtype` on `device`, minus `shift`, divided by `scale`.
    """

    blocks: Callable[[], Iterable[Shaped[Tensor, "_ d"]]]
    n: int
    d: int
    dtype: torch.dtype = torch.float64
    device: torch.device = CPU
    shift: Float[Tensor, " d"] | None = None
    scale: Float[Tensor, " d"] | None = None

    def __iter__(self) -> Iterator[tuple[slice, Float[Tensor, "_ d"]]]:
        """Each block with its row range; Mismatch unless they are n rows of d columns."""
        start = 0
        for block in self.blocks():
            rows = slice(start, start + len(block))
            if block.ndim != 2 or block.shape[1] != self.d or rows.stop > self.n:
                raise Mismatch(
                    f"{self._expected()}; one of shape {tuple(block.shape)} follows row {start}."
                )
            yield rows, self._prepared(block)
            start = rows.stop
        if start != self.n:
            raise Mismatch(f"{self._expected()}; they end after {start}.")

    def _expected(self) -> str:
        return f"The blocks must add up to {self.n} rows of {self.d} columns"

    def _prepared(self, block: Tensor) -> Tensor:
        ready = block.to(self.device, self.dtype)
        if self.shift is None:
            return ready
        ready = ready - self.shift.to(self.dtype)
        return ready if self.scale is None else ready.div_(self.scale.to(self.dtype))

    def standardised(self, shift: Float[Tensor, " d"], scale: Float[Tensor, " d"]) -> "RowBlocks":
        """The same rows minus `shift`, divided by `scale`; computed once if memory allows."""
        made = replace(self, shift=shift, scale=scale)
        if self.n * self.d * torch.finfo(self.dtype).bits // 8 > MAX_CAST_BYTES:
            return made
        return as_row_blocks(made.to_tensor(), dtype=self.dtype)

    def to_tensor(self) -> Float[Tensor, "n d"]:
        """All rows as one tensor."""
        made = torch.empty(self.n, self.d, dtype=self.dtype, device=self.device)
        for rows, block in self:
            made[rows] = block
        return made

    def take(self, index: Shaped[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """The rows at `index`, in its order, read in one pass."""
        made = torch.empty(len(index), self.d, dtype=self.dtype, device=self.device)
        for rows, block in self:
            here = (index >= rows.start) & (index < rows.stop)
            made[here.to(self.device)] = block[(index[here] - rows.start).to(self.device)]
        return made


def as_row_blocks(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    *,
    dtype: torch.dtype | None = None,
    block: int = BLOCK_ROWS,
) -> RowBlocks:
    """A tensor as row blocks; row blocks unchanged, or in `dtype` if it is given."""
    if isinstance(x, RowBlocks):
        return x if dtype is None else replace(x, dtype=dtype)
    chosen = dtype or solver_dtype(x.device)
    small = x.shape[0] * x.shape[1] * torch.finfo(chosen).bits // 8 <= MAX_CAST_BYTES
    values = x.to(chosen) if small else x
    return RowBlocks(lambda: values.split(block), x.shape[0], x.shape[1], chosen, x.device)


def solver_dtype(device: torch.device) -> torch.dtype:
    """float64 on CPUs, where it is nearly as fast as float32; float32 elsewhere."""
    return torch.float64 if device.type == "cpu" else torch.float32


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Counts, means and variances of groups of rows, and the scatter matrix of all rows."""

    mean: Float[Tensor, " d"]
    """Of all rows."""
    deviation: Float[Tensor, " d"]
    """Of all rows; 1 where a column is constant."""
    count: Float[Tensor, " group"]
    group_mean: Float[Tensor, "group d"]
    group_variance: Float[Tensor, "group d"]
    scatter: Float[Tensor, "d d"] | None
    """Sum over all rows of (x - mean)(x - mean)^T, if requested."""


def group_moments(
    rows: RowBlocks, groups: Shaped[Tensor, "group n"], *, scatter: bool
) -> GroupMoments:
    """The moments of groups of rows (masks or row weights), in one pass and in float64.

    All sums are relative to the mean of the first block, so that a feature with a huge mean loses
    no precision.
    """
    if rows.n == 0:
        raise BadData("The feature matrix has no rows: give at least one.")
    guess = next(iter(rows))[1].double().mean(0)
    weight = torch.cat([torch.ones(1, rows.n), groups]).to(rows.device, torch.float64)
    first, second = torch.zeros(2, len(weight), rows.d, dtype=torch.float64, device=rows.device)
    cross = torch.zeros(rows.d if scatter else 0, rows.d, dtype=torch.float64, device=rows.device)
    for index, block in rows:
        centred = block.double() - guess
        first += weight[:, index] @ centred
        second += weight[:, index] @ centred.square()
        if scatter:
            cross.addmm_(centred.T, centred)
    count = weight.sum(1, keepdim=True)
    offset = first / count
    variance = (second / count - offset.square()).clamp_min_(0.0)
    if scatter:
        cross.addr_(offset[0], offset[0], alpha=-rows.n)
    deviation = variance[0].sqrt()
    # A variance at the level of rounding errors is 0.
    constant = variance[0] <= 1e-14 * (offset[0] + guess).square()
    return GroupMoments(
        offset[0] + guess,
        torch.where(constant | (deviation == 0), torch.ones_like(deviation), deviation),
        count[1:, 0],
        offset[1:] + guess,
        variance[1:],
        cross if scatter else None,
    )


def check_finite(x: Shaped[Tensor, "n d"] | RowBlocks) -> None:
    """BadData, with the number of rows and columns, if a feature is NaN or infinite."""
    rows = as_row_blocks(x, dtype=x.dtype) if isinstance(x, Tensor) else x
    bad_rows, bad_columns = 0, torch.zeros(rows.d, dtype=torch.bool, device=rows.device)
    for _, block in rows:
        wrong = ~torch.isfinite(block)
        if bool(wrong.any()):
            bad_rows += int(wrong.any(1).sum())
            bad_columns |= wrong.any(0)
    if bad_rows:
        raise BadData(
            f"{bad_rows} of {rows.n} rows have NaN or infinite features, in "
            f"{int(bad_columns.sum())} of {rows.d} columns. Read the model in float32 "
            "(dtype='float32'), or drop those rows."
        )


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


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and eigenvectors of X^T X / n: all, or those in the span of some rows."""

    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]

    @property
    def complete(self) -> bool:
        """Whether the eigenvectors span the space."""
        return self.vectors.shape[0] == self.vectors.shape[1]

    def solve(
        self,
        gradient: Float[Tensor, "p cls d"],
        curvature: Float[Tensor, "p cls"],
        penalty: Float[Tensor, " p"],
    ) -> Float[Tensor, "p cls d"]:
        """(curvature * X^T X / n + penalty * I)^-1 times each gradient."""
        level = penalty[:, None, None]
        inside = gradient @ self.vectors
        scaled = inside / torch.addcmul(level, curvature[:, :, None], self.values)
        if self.complete:
            return scaled @ self.vectors.T
        return torch.addcmul((scaled - inside / level) @ self.vectors.T, gradient, 1.0 / level)


def needs_scatter(rows: RowBlocks) -> bool:
    """Whether to compute the eigenvectors from the d x d scatter matrix."""
    return rows.d <= min(rows.n, MAX_SCATTER_WIDTH)


def spectrum(
    rows: RowBlocks, seen: GroupMoments, scale: Float[Tensor, " d"], *, max_rows: int | None = None
) -> Spectrum:
    """The eigenvectors of `rows` (already centred and scaled by `scale`), in the rows' dtype.

    For a matrix too wide for its scatter matrix, those in the span of `max_rows` of its rows.
    """
    if seen.scatter is not None:
        values, vectors = torch.linalg.eigh(seen.scatter / torch.outer(scale, scale) / rows.n)
        return Spectrum(values.clamp_min(0.0).to(rows.dtype), vectors.to(rows.dtype))
    # A preconditioner may be approximate, so evenly spaced rows are enough.
    count = min(rows.n, max_rows or MAX_SCATTER_WIDTH)
    some = rows.take(torch.arange(count) * rows.n // count).double()
    values, left = torch.linalg.eigh(some @ some.T / count)
    used = values > 1e-10 * values[-1].clamp_min(1e-300)
    vectors = some.T @ (left[:, used] / (values[used] * count).sqrt())
    return Spectrum(values[used].to(rows.dtype), vectors.to(rows.dtype))
