"""How far a mean over repeats can be trusted, by what the repeats were tested on.

- Each repeat draws its own test rows (repeats, kfold, curve): `corrected_t` and `paired_t`. A
  learning curve's train part is thinned, but what the repeats share hangs on the rows it was
  thinned from, so those count as n_train.
- The repeats share their test rows (fixed, kshot): their spread s^2 holds nothing of which rows
  these happen to be. The variance of the mean is s^2/J plus what the test rows bring: Wilson's for
  shares of right answers, the jackknife's over blocks of rows for anything else (Efron and
  Tibshirani 1993). Degrees of freedom are Welch's. Two cells are compared block by block: a row
  that both find hard is no difference. Shares get two more rows on which the cells disagree, one
  either way (Bonett and Price 2012), so that three rows can't tell them apart for certain.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import Mismatch
from cutaway.measure.intervals import (
    NAN,
    Difference,
    Interval,
    corrected_t,
    paired_t,
    t_p_value,
    t_quantile,
    two_proportions,
    wilson,
)

RowIndices = NDArray[np.int64]
N_BLOCKS = 20
"""Blocks of test rows: enough for a variance, few enough to measure each cell without each."""


@dataclass(frozen=True)
class ResamplingInfo:
    """What the repeats of one cell stand on."""

    n_train: float
    """Rows that each repeat's train part comes from."""
    n_test: float
    tested: int | None = None
    """Distinct test rows where the repeats share them, None where each repeat draws its own."""
    blocks: tuple[float, ...] = ()
    """The metric's pseudo-values over blocks of the shared test rows, mean over repeats."""


def assign_blocks(tests: Iterable[RowIndices], n: int) -> RowIndices:
    """The block of each of n rows, -1 for those that no repeat tests; the same for every cell."""
    seen = np.zeros(n, dtype=bool)
    for rows in tests:
        seen[rows] = True
    dealt = np.full(n, -1, dtype=np.int64)
    count = int(seen.sum())
    mixed = np.random.default_rng(0).permutation(np.flatnonzero(seen))
    dealt[mixed] = np.arange(count) % max(1, min(N_BLOCKS, count))
    return dealt


def pseudo_values(
    value: Callable[[RowIndices], float], blocks: RowIndices, count: int
) -> tuple[float, ...]:
    """The jackknife's pseudo-values of a metric, one per block.

    `value` measures some of the test rows, by their place; `blocks` is the block of each.
    """
    whole = value(np.arange(len(blocks)))
    made = []
    for block in range(count):
        others = np.flatnonzero(blocks != block)
        without = whole if len(others) == len(blocks) else value(others) if len(others) else NAN
        made.append(count * whole - (count - 1) * without)
    return tuple(made)


def mean_interval(
    values: ArrayLike, basis: ResamplingInfo, *, share: bool, level: float = 0.95
) -> Interval:
    """The interval of a mean over repeats; `share` says that it is one of right answers."""
    found = corrected_t(values, n_train=basis.n_train, n_test=basis.n_test, level=level)
    one = found.n == 1 and share and basis.n_test >= 1
    rows = round(basis.n_test) if basis.tested is None and one else basis.tested
    if rows is None or found.n == 0:
        return found
    between = _repeat_variance(values)
    if share:
        ends = wilson(found.mean * rows, rows, level=level)
        more = t_quantile(found.n - 1, level) * np.sqrt(between) if found.n > 1 else 0.0
        below, above = (
            np.hypot(end, more) for end in (found.mean - ends.low, ends.high - found.mean)
        )
        return Interval(found.mean, found.mean - below, found.mean + above, level, found.n)
    # Blocks that are all alike (everything right) show no variance, which doesn't mean certainty.
    rows_bring = _block_variance(basis.blocks) or NAN
    error, freedom = _standard_error(between, found.n, rows_bring, len(basis.blocks))
    reach = t_quantile(freedom, level) * error
    return Interval(found.mean, found.mean - reach, found.mean + reach, level, found.n)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    mine: ResamplingInfo,
    other: ResamplingInfo,
    *,
    share: bool,
    level: float = 0.95,
) -> Difference:
    """First minus second on the same splits, with its interval and p value."""
    found = paired_t(first, second, n_train=mine.n_train, n_test=mine.n_test, level=level)
    gap, repeats = found.interval.mean, found.interval.n
    if not (mine.tested and other.tested):
        if not share or repeats != 1 or mine.n_test < 1:
            return found
        one, two = (float(np.nanmean(np.asarray(v, dtype=float))) for v in (first, second))
        return two_proportions(one, two, round(mine.n_test), level=level)
    apart = _block_differences(mine.blocks, other.blocks)
    rows = _block_variance(apart) + (2.0 / (mine.tested + 2) ** 2 if share else 0.0)
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    error, freedom = _standard_error(_repeat_variance(gaps), repeats, rows, len(apart))
    if isnan(error) or repeats == 0:
        return Difference(Interval(gap, NAN, NAN, level, repeats), NAN)
    reach = t_quantile(freedom, level) * error
    p = t_p_value(freedom, abs(gap) / error) if error else 1.0 if gap == 0.0 else NAN
    return Difference(Interval(gap, gap - reach, gap + reach, level, repeats), p)


def _block_differences(mine: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """The differences block by block; none where a cell has no blocks."""
    if mine and other and len(mine) != len(other):
        raise Mismatch(
            f"A paired test needs the same blocks of test rows, got {len(mine)} and {len(other)}. "
            "Measure both cells on the same splits."
        )
    return tuple(a - b for a, b in zip(mine, other, strict=False))


def _repeat_variance(values: ArrayLike) -> float:
    """The variance of the mean that the repeats show: s^2 / J, none for one."""
    given = np.asarray(values, dtype=np.float64)
    known = given[~np.isnan(given)]
    # Equal values leave a variance of 1e-33, which is none.
    if len(known) < 2 or known.min() == known.max():
        return 0.0
    return float(known.var(ddof=1)) / len(known)


def _block_variance(blocks: tuple[float, ...]) -> float:
    """The variance of the mean that the blocks of test rows show; NaN without two values."""
    if len(blocks) < 2 or any(isnan(value) for value in blocks):
        return NAN
    return 0.0 if min(blocks) == max(blocks) else float(np.var(blocks, ddof=1)) / len(blocks)


def _standard_error(between: float, repeats: int, rows: float, blocks: int) -> tuple[float, float]:
    """The error of the mean and its degrees of freedom, Welch's."""
    total = between + rows
    parts = ((between, repeats - 1), (rows, blocks - 1))
    spent = sum(part**2 / freedom for part, freedom in parts if part > 0)
    return float(np.sqrt(total)), total**2 / spent if spent > 0 else max(1.0, blocks - 1.0)
