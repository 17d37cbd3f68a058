"""Confidence intervals, and tests of differences.

- `corrected_t`: over repeated splits, whose train parts overlap, so that the plain t interval is
  far too narrow. Nadeau and Bengio (2003), "Inference for the Generalization Error": the variance
  of the mean is s^2 (1/J + n_test/n_train). For k folds this is Bouckaert and Frank's (2004).
- `wilson`: a proportion, from one test set. Wilson (1927); stays inside [0, 1].
- `bootstrap`: percentile interval over resampled rows. Efron and Tibshirani (1993).
- `paired_t`: two cells on the same splits, the corrected t on their differences.
- `two_proportions`: two proportions from one test set, treated as if from two. Cells that agree on
  most rows differ less by chance than that, so the test is conservative.
- `over_seeds`: trainings with several seeds, or a single training by the intervals of its parts.

`repeats.py` chooses between them by how the test rows were drawn.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
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
    """The interval of a mean over J repeated splits; NaN bounds for one repeat.

    Repeats without a value (NaN) are left out and `n` counts the others.
    """
    known = _not_nan(values, level)
    if len(known) < 2:
        return Interval(float(known.mean()) if len(known) else NAN, NAN, NAN, level, len(known))
    mean, error = float(known.mean()), _corrected_standard_error(known, n_train, n_test)
    reach = t_quantile(len(known) - 1, level) * error
    return Interval(mean, mean - reach, mean + reach, level, len(known))


def over_seeds(seeds: Sequence[Sequence[Interval]], *, level: float = 0.95) -> Interval:
    """The interval of a mean over trainings, each of them the mean of its parts (sets of texts).

    Over several seeds it is the plain t interval. With one seed it comes from the parts' own
    intervals, as of independent sets; the interval of a single part is kept as it is. The bounds
    are NaN if a part has none.
    """
    means = [float(np.mean([part.mean for part in parts])) for parts in seeds]
    if len(seeds) != 1:
        return corrected_t(means, n_train=1, n_test=0, level=level)
    if len(seeds[0]) == 1:
        return seeds[0][0]
    below = np.linalg.norm([part.mean - part.low for part in seeds[0]]) / len(seeds[0])
    above = np.linalg.norm([part.high - part.mean for part in seeds[0]]) / len(seeds[0])
    return Interval(means[0], means[0] - float(below), means[0] + float(above), level, 1)


def clip_interval(interval: Interval, low: float, high: float) -> Interval:
    """The interval clipped to the possible values of the metric."""
    return replace(
        interval,
        low=interval.low if isnan(interval.low) else max(low, interval.low),
        high=interval.high if isnan(interval.high) else min(high, interval.high),
    )


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
        return Difference(interval, 1.0 if interval.mean == 0.0 else 0.0)
    freedom = len(gaps) - 1
    return Difference(interval, t_p_value(freedom, abs(interval.mean) / error), freedom)


def wilson(right: float, n: int, *, level: float = 0.95) -> Interval:
    """The interval of a proportion, `right` of `n`."""
    _check_level(level)
    if n < 1 or not 0 <= right <= n:
        raise BadData(f"A proportion needs 0 <= right <= n and n >= 1, got {right!r} of {n!r}.")
    z, share = float(_special().ndtri((1 + level) / 2)), right / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = max(0.0, float(middle - reach)), min(1.0, float(middle + reach))
    # At 0 and n the bound is the proportion itself; rounding must not push it beyond.
    return Interval(share, min(low, share), max(high, share), level, n)


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
