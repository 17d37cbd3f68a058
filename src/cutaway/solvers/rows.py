"""A feature matrix as blocks of rows, in memory or not, and its moments in one pass.

Solvers only iterate over blocks, several times. A tensor is split into blocks; a matrix larger than
memory is a callable that yields its blocks anew at each call.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cutaway.core.errors import BadData, Mismatch

# Long enough for fast matrix products, short enough for the CPU cache.
BLOCK_ROWS = 2048
# A matrix up to this size is cast to the solver's dtype as a whole, not block by block.
MAX_CAST_BYTES = 384 << 20
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
