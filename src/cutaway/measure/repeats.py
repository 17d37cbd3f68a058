"""Means over repeated splits: their intervals, and whether two cells differ.

- If each repeat draws its own test rows (protocols repeats, kfold, curve): `corrected_t` and
  `paired_t`. The training part of a learning curve is a subsample; what its repeats have in common
  depends on the rows it was drawn from, so those count as n_train.
- If the repeats share their test rows (fixed, kshot), their spread s^2 lacks the variance due to
  the choice of these rows. The variance of the mean is s^2/J plus the variance due to the
  test rows: Wilson's for proportions, the jackknife's over blocks of rows for other metrics (Efron
  and Tibshirani 1993). Degrees of freedom are Welch's. Two cells are compared block by block, so
  that rows which are hard for both don't count as a difference. For proportions, two rows are added
  on which the cells disagree, one in each direction (Bonett and Price 2012), so that three rows
  can't establish a difference with certainty.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import Mismatch
from cutaway.measure.intervals import (
    NAN,
    Difference,
    Interval,
    clip_interval,
    corrected_t,
    paired_t,
    t_p_value,
    t_quantile,
    two_proportions,
    wilson,
)
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.measure.splits import Split

RowIndices = NDArray[np.int64]
N_BLOCKS = 20
"""Blocks of test rows for the jackknife."""


@dataclass(frozen=True)
class ResamplingInfo:
    """How the repeats of one cell were drawn: what the variance of their mean depends on."""

    n_train: float
    """Rows that the training part of each repeat was drawn from."""
    n_test: float
    tested: int | None = None
    """Number of distinct test rows if the repeats share them, None if each draws its own."""
    blocks: tuple[float, ...] = ()
    """Jackknife pseudo-values over blocks of the shared test rows, averaged over repeats."""
    by_repeat: tuple[tuple[float, ...], ...] = ()
    """The same of each repeat."""


def assign_blocks(tests: Iterable[RowIndices], n: int) -> RowIndices:
    """The block of each of n rows, -1 for rows that are never tested; the same for every cell."""
    seen = np.zeros(n, dtype=bool)
    for rows in tests:
        seen[rows] = True
    blocks = np.full(n, -1, dtype=np.int64)
    count = int(seen.sum())
    mixed = np.random.default_rng(0).permutation(np.flatnonzero(seen))
    blocks[mixed] = np.arange(count) % max(1, min(N_BLOCKS, count))
    return blocks


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
    """The interval of a mean over repeats; `share` marks proportions of correct rows."""
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
    # Equal blocks (everything correct) have no variance, which does not mean certainty.
    row_variance = _block_variance(basis.blocks) or NAN
    error, freedom = _standard_error(between, found.n, row_variance, len(basis.blocks))
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
    return Difference(Interval(gap, gap - reach, gap + reach, level, repeats), p, freedom)


def _block_differences(mine: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """The differences block by block; none if a cell has no blocks."""
    if mine and other and len(mine) != len(other):
        raise Mismatch(
            f"A paired test needs the same blocks of test rows, got {len(mine)} and {len(other)}. "
            "Measure both cells on the same splits."
        )
    return tuple(a - b for a, b in zip(mine, other, strict=False))


def _repeat_variance(values: ArrayLike) -> float:
    """The variance of the mean due to the repeats: s^2 / J; 0 for one repeat."""
    given = np.asarray(values, dtype=np.float64)
    known = given[~np.isnan(given)]
    # Rounding gives equal values a variance of 1e-33 instead of 0.
    if len(known) < 2 or known.min() == known.max():
        return 0.0
    return float(known.var(ddof=1)) / len(known)


def _block_variance(blocks: tuple[float, ...]) -> float:
    """The variance of the mean due to the test rows; NaN with fewer than two blocks."""
    if len(blocks) < 2 or any(isnan(value) for value in blocks):
        return NAN
    return 0.0 if min(blocks) == max(blocks) else float(np.var(blocks, ddof=1)) / len(blocks)


def _standard_error(between: float, repeats: int, rows: float, blocks: int) -> tuple[float, float]:
    """The standard error of the mean and Welch's degrees of freedom."""
    total = between + rows
    parts = ((between, repeats - 1), (rows, blocks - 1))
    spent = sum(part**2 / freedom for part, freedom in parts if part > 0)
    return float(np.sqrt(total)), total**2 / spent if spent > 0 else max(1.0, blocks - 1.0)


@dataclass(frozen=True)
class RepeatMetrics:
    """The sizes and metrics of one repeat of a cell."""

    repeat: int
    n_train: int
    n_val: int
    n_test: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None
    """The requested training size of a learning curve; repeats of one size form a group."""
    drawn: int | None = None
    tested: int | None = None
    """Both as in the split."""
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Pseudo-values of some metrics over blocks of shared test rows."""

    @classmethod
    def of(
        cls,
        split: Split,
        metrics: Mapping[str, float],
        blocks: Mapping[str, tuple[float, ...]] | None = None,
    ) -> "RepeatMetrics":
        """The metrics of one split."""
        sizes = len(split.train), len(split.val), len(split.test)
        return cls(
            split.repeat, *sizes, metrics, split.size, split.drawn, split.tested, blocks or {}
        )


def resampling_info(group: Sequence[RepeatMetrics], metric: str) -> ResamplingInfo:
    """How these repeats were drawn, with the pseudo-values of one metric."""
    train, test = (float(np.mean([getattr(m, k) for m in group])) for k in ("n_train", "n_test"))
    of_train = metric.endswith("_train")
    tested = round(train) if of_train and group[0].tested else group[0].tested
    known = [m.blocks[metric] for m in group if metric in m.blocks]
    if of_train and len(group) == 1:
        test = train
    return ResamplingInfo(
        float(np.mean([m.drawn or m.n_train for m in group])), test, tested,
        tuple(np.mean(known, axis=0).tolist()) if known else (), tuple(known),
    )  # fmt: skip


def group_by_size(measured: Sequence[RepeatMetrics]) -> Iterable[list[RepeatMetrics]]:
    """The repeats of each training size."""
    found: dict[int | None, list[RepeatMetrics]] = defaultdict(list)
    for one in measured:
        found[one.size].append(one)
    return found.values()


def metric_interval(
    values: Sequence[float], group: Sequence[RepeatMetrics], metric: str
) -> Interval:
    """The 95 % interval of the mean over repeats."""
    facts = metric_facts(metric)
    interval = mean_interval(values, resampling_info(group, metric), share=facts.proportion)
    return clip_interval(interval, 0.0, 1.0) if facts.bounds == UNIT else interval
