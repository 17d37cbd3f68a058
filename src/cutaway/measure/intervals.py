"""Confidence intervals, and tests of differences.

- `corrected_t`: over repeated splits, whose train parts overlap, so that the plain t interval is
  far too narrow. Nadeau and Bengio (2003), "Inference for the Generalization Error": the variance
  of the mean is s^2 (1/J + n_test/n_train). For k folds this is Bouckaert and Frank's (2004).
- `wilson`: a proportion, from one test set. Wilson (1927); stays inside [0, 1].
- `bootstrap`: percentile interval over resampled rows. Efron and Tibshirani (1993).
- `paired_t`: two cells on the same splits, the corrected t on their differences.
- `two_proportions`: two proportions from one test set, treated as if from two. Cells that agree on
  most rows differ less by chance than that, so the test is conservative.
- `from_standard_error`: any metric, from its standard error, on the scale that its range asks for.
- `ratio`: a ratio of two means over the same blocks of rows. Fieller (1954).
- `over_seeds`: trainings with several seeds, or a single training by the intervals of its parts.

`repeats.py` has the standard errors of means over splits and of differences.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import BadData, BadSpec, Mismatch

NAN = float("nan")
# Resampled row numbers held at once: 32 MB.
RESAMPLE_BLOCK = 4_000_000


def _special() -> Any:
    # Imported on first use, so that pages of the report load quickly.
    from scipy import special

    return special


def t_quantile(freedom: float, level: float) -> float:
    """Half the width of an interval of this level, in standard errors."""
    if freedom == float("inf"):
        return normal_quantile(level)
    return float(_special().stdtrit(freedom, (1 + level) / 2))


def normal_quantile(level: float) -> float:
    """Half the width of an interval of this level, in standard errors, if these are known."""
    return float(_special().ndtri((1 + level) / 2))


def t_p_value(freedom: float, errors: float) -> float:
    """The two-sided p value of a deviation of this many standard errors."""
    return float(2 * _special().stdtr(freedom, -errors))


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; NaN bounds if there are too few values."""

    mean: float
    low: float
    high: float
    level: float
    n: int
    """Number of values (repeats or rows) it comes from."""
    freedom: float = field(default=inf, compare=False)
    """Degrees of freedom of the t distribution whose quantile it reaches."""

    @property
    def standard_error(self) -> float:
        """Half the width, in quantiles of its distribution."""
        return (self.high - self.low) / 2 / t_quantile(self.freedom, self.level)


@dataclass(frozen=True)
class Difference:
    """The difference between two cells on the same splits."""

    interval: Interval
    p: float
    """Two-sided p value."""
    freedom: float = float("inf")
    """Degrees of freedom of the t distribution that both come from."""


def corrected_t(
    values: ArrayLike, *, n_train: float, n_test: float, level: float = 0.95
) -> Interval:
    """The interval of a mean over J repeated splits; NaN bounds for one repeat or equal ones.

    Repeats without a value (NaN) are left out and `n` counts the others.
    """
    known = _not_nan(values, level)
    # Equal scores of splits say nothing about their error.
    if len(known) < 2 or (n_test > 0 and known.min() == known.max()):
        return Interval(float(known.mean()) if len(known) else NAN, NAN, NAN, level, len(known))
    mean, error = float(known.mean()), _corrected_standard_error(known, n_train, n_test)
    freedom = len(known) - 1
    reach = t_quantile(freedom, level) * error
    return Interval(mean, mean - reach, mean + reach, level, len(known), freedom)


def over_seeds(seeds: Sequence[Sequence[Interval]], *, level: float = 0.95) -> Interval:
    """The interval of a mean over trainings, each of them the mean of its parts (sets of texts).

    The parts' own intervals, as of independent sets, are the variance due to the test rows, which
    all seeds share; the spread of the seeds is added to it (degrees of freedom: Welch's). The
    interval of a single part is kept as it is. If a part has no interval, it is the plain t
    interval over seeds, and the bounds of a single seed are NaN.
    """
    means = np.array([float(np.mean([part.mean for part in parts])) for parts in seeds])
    if len(seeds) == 1 and len(seeds[0]) == 1:
        return seeds[0][0]
    halves = [
        [np.linalg.norm([abs(getattr(p, end) - p.mean) for p in parts]) / max(len(parts), 1)
         for end in ("low", "high")]
        for parts in seeds
    ]  # fmt: skip
    below, above = np.mean(halves, axis=0)
    if np.isnan(below + above) or np.isnan(means).any():
        return corrected_t(means, n_train=1, n_test=0, level=level)
    spread = 0.0 if means.min() == means.max() else float(means.var(ddof=1)) / len(means)
    rows = ((below + above) / 2 / normal_quantile(level)) ** 2
    quantile = t_quantile(welch_freedom((rows, inf), (spread, len(means) - 1)), level)
    wider = quantile / normal_quantile(level)
    low, high = (np.hypot(half * wider, quantile * np.sqrt(spread)) for half in (below, above))
    mean = float(means.mean())
    return Interval(mean, mean - float(low), mean + float(high), level, len(means))


def over_seed_rows(
    values: Sequence[float | None], lows: Sequence[float | None], highs: Sequence[float | None]
) -> Interval:
    """`over_seeds` of columns of a table, which have None where a number is missing."""
    seeds = []
    for row in zip(values, lows, highs, strict=True):
        mean, low, high = (NAN if value is None else float(value) for value in row)
        seeds.append([Interval(mean, low, high, 0.95, 1)])
    return over_seeds(seeds)


def welch_freedom(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of (variance, degrees of freedom), by Welch and Satterthwaite."""
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / freedom for variance, freedom in parts if variance > 0)
    if spent > 0:
        return total**2 / spent
    return min((freedom for variance, freedom in parts if variance > 0), default=parts[0][1])


def clip_interval(interval: Interval, low: float | None, high: float | None) -> Interval:
    """The interval clipped to the possible values of the metric; None for no limit."""
    return replace(
        interval,
        low=interval.low if low is None or isnan(interval.low) else max(low, interval.low),
        high=interval.high if high is None or isnan(interval.high) else min(high, interval.high),
    )


def from_standard_error(
    mean: float,
    error: float,
    *,
    n: int,
    freedom: float = inf,
    level: float = 0.95,
    bounds: tuple[float | None, float | None] = (None, None),
    rows: float = 0.0,
) -> Interval:
    """The interval of a value from its standard error, on the scale that its range asks for.

    If a perfect score is worth some `rows`: Wilson's interval of as many rows as have this standard
    error. Else Fisher's z for correlations (-1..1), a logarithm for values with one limit, and the
    plain t interval. A standard error of 0 gives no interval (NaN), except by the rows.
    """
    quantile, (low, high) = t_quantile(freedom, level), bounds
    if rows and low is not None and high is not None:
        width, place = high - low, (mean - low) / (high - low)
        spread = place * (1 - place) * width**2
        if error > 0 and spread > 0:
            ends = _wilson_ends(place, spread / error**2, quantile)
        else:
            freedom, ends = inf, _wilson_ends(place, rows, normal_quantile(level))
        return Interval(mean, low + width * ends[0], low + width * ends[1], level, n, freedom)
    if not error > 0:
        return Interval(mean, NAN, NAN, level, n)
    reach = quantile * error
    if (low, high) == (-1.0, 1.0) and abs(mean) < 1:
        reach /= 1 - mean**2
        middle = np.arctanh(mean)
        ends = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
        return Interval(mean, *ends, level, n, freedom)
    if low is None and high is not None and mean < high:
        factor = float(np.exp(reach / (high - mean)))
        ends = high - (high - mean) * factor, high - (high - mean) / factor
        return Interval(mean, *ends, level, n, freedom)
    if low is not None and high is None and mean > low:
        factor = float(np.exp(reach / (mean - low)))
        ends = low + (mean - low) / factor, low + (mean - low) * factor
        return Interval(mean, *ends, level, n, freedom)
    return clip_interval(Interval(mean, mean - reach, mean + reach, level, n, freedom), low, high)


def ratio(numerator: ArrayLike, denominator: ArrayLike, *, level: float = 0.95) -> Interval:
    """The ratio of two means over the same blocks of rows, with Fieller's interval.

    The bounds are NaN if the denominator doesn't differ from 0: the ratio can then be anything.
    """
    above, below = (np.asarray(v, dtype=np.float64) for v in (numerator, denominator))
    n, mean = len(above), float(above.mean() / below.mean()) if below.mean() else NAN
    if n < 2 or isnan(mean):
        return Interval(mean, NAN, NAN, level, n)
    square = t_quantile(n - 1, level) ** 2
    (top, both), (_, under) = np.cov(above, below) / n
    a = below.mean() ** 2 - square * under
    b = above.mean() * below.mean() - square * both
    c = above.mean() ** 2 - square * top
    if a <= 0 or b**2 < a * c:
        return Interval(mean, NAN, NAN, level, n)
    root = float(np.sqrt(b**2 - a * c))
    return Interval(mean, float((b - root) / a), float((b + root) / a), level, n)


def negate(found: Difference) -> Difference:
    """Second minus first."""
    span = found.interval
    turned = replace(span, mean=-span.mean, low=-span.high, high=-span.low)
    return replace(found, interval=turned)


def paired_t(
    first: ArrayLike, second: ArrayLike, *, n_train: float, n_test: float, level: float = 0.95
) -> Difference:
    """First minus second over the same splits, with its interval and p value."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise Mismatch(f"A paired test needs the same repeats, got {len(a)} and {len(b)}.")
    gaps = (a - b)[~np.isnan(a - b)]
    interval = corrected_t(gaps, n_train=n_train, n_test=n_test, level=level)
    if len(gaps) < 2:
        return Difference(interval, NAN)
    error = _corrected_standard_error(gaps, n_train, n_test)
    if error == 0.0:
        return Difference(interval, 1.0 if interval.mean == 0.0 else NAN)
    freedom = len(gaps) - 1
    return Difference(interval, t_p_value(freedom, abs(interval.mean) / error), freedom)


def wilson(right: float, n: int, *, level: float = 0.95) -> Interval:
    """The interval of a proportion, `right` of `n`."""
    _check_level(level)
    if n < 1 or not 0 <= right <= n:
        raise BadData(f"A proportion needs 0 <= right <= n and n >= 1, got {right!r} of {n!r}.")
    share = right / n
    low, high = _wilson_ends(share, n, normal_quantile(level))
    return Interval(share, low, high, level, n)


def _wilson_ends(share: float, n: float, z: float) -> tuple[float, float]:
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = max(0.0, float(middle - reach)), min(1.0, float(middle + reach))
    # At 0 and n the bound is the proportion itself; rounding must not push it beyond.
    return min(low, share), max(high, share)


def two_proportions(first: float, second: float, n: int, *, level: float = 0.95) -> Difference:
    """First minus second, each a share of `n` rows, with its interval and p value (normal)."""
    _check_level(level)
    if n < 1 or not (0 <= first <= 1 and 0 <= second <= 1):
        raise BadData(f"Shares must be in 0..1 of n >= 1 rows, got {first!r}, {second!r} of {n!r}.")
    gap, middle = first - second, (first + second) / 2
    apart = np.sqrt((first * (1 - first) + second * (1 - second)) / n)
    alike = np.sqrt(2 * middle * (1 - middle) / n)
    reach = float(_special().ndtri((1 + level) / 2) * apart)
    p = float(2 * _special().ndtr(-abs(gap) / alike)) if alike > 0 else 1.0
    return Difference(Interval(gap, gap - reach, gap + reach, level, n), p)


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float],
    n: int,
    *,
    seed: int,
    level: float = 0.95,
    resamples: int = 1000,
) -> Interval:
    """The percentile interval of a statistic of row numbers, 0 to n - 1.

    Resamples without a value (NaN, such as AUC with one class) are left out.
    """
    _check_level(level)
    drawn = [
        statistic(rows)
        for block in _resample_blocks(n, seed=seed, resamples=resamples)
        for rows in block
    ]
    return _percentile_interval(
        statistic(np.arange(n)), np.asarray(drawn, dtype=np.float64), level, n
    )


def _corrected_standard_error(values: NDArray[np.float64], n_train: float, n_test: float) -> float:
    if not (n_train > 0 and n_test >= 0):
        raise BadSpec(
            f"n_train must be above 0 and n_test at least 0, got {n_train!r}, {n_test!r}."
        )
    # Rounding gives equal values a variance of 1e-33 instead of 0.
    spread = 0.0 if values.min() == values.max() else float(values.var(ddof=1))
    return float(np.sqrt(spread * (1 / len(values) + n_test / n_train)))


def _resample_blocks(n: int, *, seed: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """Blocks of resampled row numbers, (resamples, n) in all."""
    if n < 1 or resamples < 1:
        raise BadData(f"A bootstrap needs rows and resamples, got {n!r} and {resamples!r}.")
    rng = np.random.default_rng(seed)
    step = max(1, RESAMPLE_BLOCK // n)
    for start in range(0, resamples, step):
        yield rng.integers(n, size=(min(step, resamples - start), n))


def _percentile_interval(mean: float, drawn: NDArray[np.float64], level: float, n: int) -> Interval:
    known = drawn[~np.isnan(drawn)]
    if len(known) == 0:
        return Interval(mean, NAN, NAN, level, n)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high), level, n)


def _not_nan(values: ArrayLike, level: float) -> NDArray[np.float64]:
    _check_level(level)
    given = np.asarray(values, dtype=np.float64)
    return given[~np.isnan(given)]


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadSpec(f"level must be between 0 and 1, got {level!r}.")
