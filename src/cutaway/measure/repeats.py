"""Means over repeated splits: their intervals, and whether two cells differ.

The variance of a mean over J repeats has two parts, and one formula serves every protocol:

- The test rows. For proportions it is p (1 - p) / rows, where `rows` is the number of distinct test
  rows of all repeats (rows that are tested more often count less; all rows for kfold, the test part
  for fixed). For several repeats and for other metrics it comes from the jackknife over blocks of
  rows (`jackknife.py`). So a row that is tested in many repeats counts as one row, and three
  repeats on 40 rows know what 120 answers know.
- The training rows: what the repeats differ by beyond what their test rows explain, divided by J.
  The corrected t of Nadeau and Bengio (2003) has this part only, from J values.

Degrees of freedom are Welch's. Scores in 0..1 have Wilson's interval of as many rows as have that
variance, which stays inside 0..1 and is never of width 0; near a perfect score, where the rows show
no or few errors, one more error is assumed. Correlations are bounded on the scale of Fisher's z, R2
and squared errors on a logarithmic scale. Two cells are compared block by block, so that rows
which are hard for both don't count as a difference; one row is added on which the cells disagree,
half in each direction (Agresti and Min 2005), so that a few rows can't establish a difference with
certainty.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import Mismatch
from cutaway.measure.intervals import (
    NAN,
    Difference,
    Interval,
    clip_interval,
    corrected_t,
    from_standard_error,
    paired_t,
    t_p_value,
    t_quantile,
    two_proportions,
    welch_freedom,
)
from cutaway.measure.metrics import UNIT, Bounds, metric_facts
from cutaway.measure.splits import Split

Blocks = NDArray[np.float64]
DECISION_ERRORS, RANK_ERRORS = 1.0, 0.3
"""Errors that are added, at a perfect score, to those that were made. A row on the wrong side of a
threshold costs a whole row, one that is ranked below some rows of the other class only a part."""


@dataclass(frozen=True)
class RowScores:
    """What the test rows of one repeat tell about one metric."""

    values: tuple[float, ...]
    """Pseudo-values, one per block of rows."""
    perfect_rows: float = 0.0
    """Rows that a perfect score is worth; 0 for metrics that are not made of right and wrong."""
    added_errors: float = DECISION_ERRORS
    bias: float = 0.0
    """How much the metric overstates by chance, as the calibration error does."""


@dataclass(frozen=True)
class ResamplingInfo:
    """How the repeats of one cell were drawn: what the variance of their mean depends on."""

    n_train: float
    """Rows that the training part of each repeat was drawn from."""
    n_test: float
    tested: float | None = None
    """Number of distinct test rows of all repeats; estimated if None."""
    blocks: tuple[tuple[float, ...], ...] = ()
    """Jackknife pseudo-values over blocks of test rows, for every repeat, or for the first."""
    perfect_rows: float = 0.0
    added_errors: float = DECISION_ERRORS
    bias: float = 0.0
    """These three as in `RowScores`."""
    overlap: float = 0.0
    """On a learning curve, the share of their training rows that two repeats have in common."""

    @property
    def block_means(self) -> tuple[float, ...]:
        """The pseudo-values averaged over repeats."""
        return tuple(np.mean(self.blocks, axis=0).tolist()) if self.blocks else ()

    def distinct_rows(self, repeats: int) -> float:
        """The number of distinct test rows; of independent splits if it is not known."""
        if self.tested is not None:
            return float(self.tested)
        share, answers = self.n_test / (self.n_train + self.n_test), repeats * self.n_test
        return answers / (1 - share + repeats * share) if repeats > 1 else self.n_test


@dataclass(frozen=True)
class RowVariance:
    """The variance of a mean over repeats that is due to its test rows."""

    mean: float
    """Variance of the mean."""
    one: float
    """Variance of a single repeat."""
    freedom: float


def mean_interval(
    values: ArrayLike,
    basis: ResamplingInfo,
    *,
    share: bool,
    bounds: Bounds = (None, None),
    level: float = 0.95,
) -> Interval:
    """The interval of a mean over repeats.

    `share` marks proportions of correct rows; `bounds` are the smallest and largest possible value.
    """
    known = _known(values)
    repeats, bounds = len(known), UNIT if share else bounds
    if repeats == 0:
        return Interval(NAN, NAN, NAN, level, 0)
    mean, blocks = float(known.mean()), _of_known(_blocks(basis), values)
    rows = _row_variance(known, blocks, basis, share=share, bounds=bounds)
    if isnan(rows.mean):
        found = corrected_t(known, n_train=basis.n_train, n_test=basis.n_test, level=level)
        return clip_interval(found, *bounds)
    between, freedom = _between(known, basis, rows)
    # The bias is an estimate too: half of it counts as its standard error.
    error = float(np.sqrt(rows.mean + between + (basis.bias / 2) ** 2))
    centre = min(max(mean - basis.bias, bounds[0] or -inf), mean) if basis.bias else mean
    worth = _worth(basis, repeats, share=share)
    found = from_standard_error(
        centre, error, n=repeats, freedom=freedom, level=level, bounds=bounds, rows=worth
    )
    ends = min(found.low, mean), max(found.high, mean)
    return Interval(mean, *ends, level, repeats, found.freedom)


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
    apart = _block_differences(mine, other)
    if apart.size == 0 or repeats == 0:
        if not share or repeats == 0 or mine.n_test < 1 or not isnan(found.interval.low):
            return found
        one, two = (float(np.nanmean(np.asarray(v, dtype=float))) for v in (first, second))
        return two_proportions(one, two, round(mine.distinct_rows(repeats)), level=level)
    every = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    gaps = _known(every)
    rows = _block_variance(_of_known(apart, every), mine, repeats)
    between, freedom = _between(gaps, mine, rows)
    # One more row on which the cells disagree, half in each direction.
    worth = _worth(mine, repeats, share=share)
    error = float(np.sqrt(rows.mean + between + (1.0 / (worth + 1) ** 2 if worth else 0.0)))
    if isnan(error) or (error == 0.0 and gap != 0.0):
        return Difference(Interval(gap, NAN, NAN, level, repeats), NAN)
    reach = t_quantile(freedom, level) * error
    p = t_p_value(freedom, abs(gap) / error) if error else 1.0
    return Difference(Interval(gap, gap - reach, gap + reach, level, repeats), p, freedom)


def _known(values: ArrayLike) -> NDArray[np.float64]:
    given = np.asarray(values, dtype=np.float64)
    return given[~np.isnan(given)]


def _of_known(blocks: Blocks, values: ArrayLike) -> Blocks:
    """The blocks of the repeats that have a value."""
    given = np.asarray(values, dtype=np.float64)
    return blocks[~np.isnan(given)] if len(blocks) == len(given) else blocks


def _worth(basis: ResamplingInfo, repeats: int, *, share: bool) -> float:
    """The rows that a perfect score over all repeats is worth, 0 if there is no such thing."""
    rows = basis.distinct_rows(repeats)
    return rows if share else basis.perfect_rows * rows / max(basis.n_test, 1.0)


def _row_variance(
    known: NDArray[np.float64],
    blocks: Blocks,
    basis: ResamplingInfo,
    *,
    share: bool,
    bounds: Bounds,
) -> RowVariance:
    repeats, mean = len(known), float(known.mean())
    found = _block_variance(blocks, basis, repeats)
    worth = _worth(basis, repeats, share=share)
    if not worth or basis.n_test < 1:
        return found
    low, high = (bounds[0] or 0.0), (bounds[1] or 1.0)
    place = min(max((mean - low) / (high - low), 0.0), 1.0)
    full = place * (1 - place) * (high - low) ** 2
    if share:
        one, most = full / basis.n_test, full / worth
        if repeats == 1 or isnan(found.mean):
            return RowVariance(most, one, inf)
        # Answers of the same row can't agree more than always, nor less than by chance.
        return RowVariance(float(np.clip(found.mean, one / repeats, most)), one, found.freedom)
    errors = min(place, 1 - place) * worth
    weight = basis.added_errors / (basis.added_errors + errors)
    more = weight * max(0.0, full / worth - found.mean)
    return RowVariance(found.mean + more, found.one, found.freedom)


def _blocks(basis: ResamplingInfo) -> Blocks:
    return np.array(basis.blocks, dtype=np.float64, ndmin=2)


def _block_variance(blocks: Blocks, basis: ResamplingInfo, repeats: int) -> RowVariance:
    """The variance due to the test rows; NaN with fewer than two blocks."""
    if blocks.shape[-1] < 2 or bool(np.isnan(blocks).any()):
        return RowVariance(NAN, NAN, inf)
    count = blocks.shape[1]
    one = float(np.mean([_variance(each) for each in blocks])) / count
    if len(blocks) == repeats:
        mean = _variance(blocks.mean(axis=0)) / count
    else:
        mean = one * basis.n_test / basis.distinct_rows(repeats)
    return RowVariance(mean, one, count - 1)


def _variance(values: NDArray[np.float64]) -> float:
    # Rounding gives equal values a variance of 1e-33 instead of 0.
    return 0.0 if values.min() == values.max() else float(values.var(ddof=1))


def _between(
    values: NDArray[np.float64], basis: ResamplingInfo, rows: RowVariance
) -> tuple[float, float]:
    """The variance of the mean due to the training rows, and Welch's degrees of freedom.

    It is the variance between repeats beyond what their test rows explain: all of it if the repeats
    share their test rows. Where that is a difference of two estimates it is shrunk, because the
    negative ones count as 0.
    """
    repeats = len(values)
    if repeats < 2:
        return 0.0, rows.freedom
    # 1 if the repeats test on different rows, 0 if on the same ones.
    apart = 1 / max(basis.n_test, 1.0)
    common = (1 / basis.distinct_rows(repeats) - apart / repeats) * repeats / (repeats - 1)
    own = min(max(1 - common / apart, 0.0), 1.0)
    excess = max(0.0, _variance(values) - own * rows.one) * (1 - 6 * own / (repeats + 5))
    # Trainings that share rows err together.
    between = excess * (1 / repeats + basis.overlap / (1 - basis.overlap))
    return between, welch_freedom((rows.mean, rows.freedom), (between, repeats - 1))


def _block_differences(mine: ResamplingInfo, other: ResamplingInfo) -> Blocks:
    """The differences by repeat and block; none if a cell has no blocks."""
    one, two = _blocks(mine), _blocks(other)
    if one.size and two.size and one.shape[1] != two.shape[1]:
        raise Mismatch(
            f"A paired test needs the same blocks of test rows, got {one.shape[1]} and "
            f"{two.shape[1]}. Measure both cells on the same splits."
        )
    return one - two if one.shape == two.shape else np.zeros((0, 0))


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
    rows: Mapping[str, RowScores] = field(default_factory=dict)
    """What the test rows tell about some of the metrics."""

    @classmethod
    def of(
        cls,
        split: Split,
        metrics: Mapping[str, float],
        rows: Mapping[str, RowScores] | None = None,
    ) -> "RepeatMetrics":
        """The metrics of one split."""
        sizes = len(split.train), len(split.val), len(split.test)
        return cls(split.repeat, *sizes, metrics, split.size, split.drawn, split.tested, rows or {})


def resampling_info(group: Sequence[RepeatMetrics], metric: str) -> ResamplingInfo:
    """How these repeats were drawn, with what their rows tell about one metric."""
    train, test = (float(np.mean([getattr(m, k) for m in group])) for k in ("n_train", "n_test"))
    drawn, tested = float(np.mean([m.drawn or m.n_train for m in group])), group[0].tested
    if metric.endswith("_train"):
        return ResamplingInfo(drawn, train, round(train))
    known = [m.rows[metric] for m in group if metric in m.rows]
    overlap = curve_overlap(group)
    if not known:
        return ResamplingInfo(drawn, test, tested, overlap=overlap)
    worth, bias = (float(np.mean([getattr(k, n) for k in known])) for n in ("perfect_rows", "bias"))
    blocks = tuple(k.values for k in known)
    return ResamplingInfo(drawn, test, tested, blocks, worth, known[0].added_errors, bias, overlap)


def curve_overlap(group: Sequence[RepeatMetrics]) -> float:
    """The share of training rows that two repeats of a learning curve have in common.

    It fades towards the whole training part, where a curve is the protocol repeats, whose
    intervals cover without it.
    """
    one = group[0]
    if one.drawn is None or one.drawn <= one.n_train:
        return 0.0
    every = one.drawn + one.n_val + one.n_test
    return one.n_train / every * (1 - one.n_train / one.drawn)


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
    basis = resampling_info(group, metric)
    return mean_interval(values, basis, share=facts.proportion, bounds=facts.bounds)
