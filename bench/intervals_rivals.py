"""Other intervals of the same data: the rivals of bench/intervals.py."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from cutaway.measure.intervals import bootstrap, corrected_t, paired_t, two_proportions
from cutaway.measure.jackknife import N_BLOCKS, assign_blocks, pseudo_values
from cutaway.measure.repeats import RepeatMetrics, ResamplingInfo

Array = NDArray[Any]
Ends = tuple[float, float]
Z, T19 = 1.959964, 2.093024
RESAMPLES = 200


def resampling(
    value: Callable[[Array], float], n: int, rng: np.random.Generator
) -> dict[str, Ends]:
    """Percentile bootstrap, and the plain jackknife."""
    blocks = assign_blocks([np.arange(n)], n)
    made = np.array(pseudo_values(value, blocks, N_BLOCKS))
    whole, reach = value(np.arange(n)), T19 * made.std(ddof=1) / np.sqrt(N_BLOCKS)
    drawn = bootstrap(value, n, seed=int(rng.integers(1 << 30)), resamples=RESAMPLES)
    return {
        "percentile bootstrap": (drawn.low, drawn.high),
        "jackknife": (whole - reach, whole + reach),
    }


def of_metric(
    metric: str, labels: Array, given: Array, function: Callable[..., float],
    rng: np.random.Generator,
) -> dict[str, Ends]:  # fmt: skip
    """The rivals of a binary metric on one test set."""
    n = len(labels)
    found = resampling(lambda r: function(labels[r], given[r]), n, rng)
    positive, negative = int((labels == 1).sum()), int((labels == 0).sum())
    whole = function(labels, given)
    if metric == "accuracy":
        found["Wald"] = _around(whole, np.sqrt(whole * (1 - whole) / n))
        right = round(whole * n)
        found["Clopper-Pearson"] = clopper_pearson(right, n)
        found["Jeffreys"] = _beta(right + 0.5, n - right + 0.5)
    if metric == "f1":
        both = int(((labels == 1) & (given == 1)).sum())
        any_ = int(((labels == 1) | (given == 1)).sum())
        low, high = wilson(both / max(any_, 1), max(any_, 1))
        found["Wilson of Jaccard"] = 2 * low / (1 + low), 2 * high / (1 + high)
    if metric == "balanced_accuracy":
        shares = (given[labels == 1] == 1).mean(), (given[labels == 0] == 0).mean()
        borders = wilson(shares[0], positive), wilson(shares[1], negative)
        found["square-and-add of Wilson"] = (
            whole - np.hypot(*(s - b[0] for s, b in zip(shares, borders, strict=True))) / 2,
            whole + np.hypot(*(b[1] - s for s, b in zip(shares, borders, strict=True))) / 2,
        )
    if metric == "auc":
        found |= _auc_rivals(given[labels == 1], given[labels == 0], whole)
    return found


def _auc_rivals(high: Array, low: Array, whole: float) -> dict[str, Ends]:
    one = (high[:, None] > low[None, :]) + 0.5 * (high[:, None] == low[None, :])
    error = np.sqrt(one.mean(1).var(ddof=1) / len(high) + one.mean(0).var(ddof=1) / len(low))
    found = {"DeLong": _around(whole, error), "Newcombe": newcombe(whole, len(high), len(low))}
    if 0 < whole < 1:
        middle, reach = special.logit(whole), Z * error / (whole * (1 - whole))
        found["DeLong, logit"] = special.expit(middle - reach), special.expit(middle + reach)
    else:
        found["DeLong, logit"] = whole, whole
    return found


def newcombe(whole: float, positive: int, negative: int) -> Ends:
    """Newcombe's (2006) method 5 for AUC."""
    size = (positive + negative) / 2 - 1
    grid = np.linspace(0.0, 1.0, 4001)
    spread = grid * (1 - grid) * (1 + size * (1 - grid) / (2 - grid) + size * grid / (1 + grid))
    inside = grid[(grid - whole) ** 2 <= Z**2 * spread / (positive * negative) + 1e-12]
    return float(inside.min()), float(inside.max())


def wilson(share: float, n: float, z: float = Z) -> Ends:
    """Wilson's interval."""
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - reach, middle + reach


def clopper_pearson(right: int, n: int) -> Ends:
    """The exact interval of a proportion."""
    low = 0.0 if right == 0 else float(special.betaincinv(right, n - right + 1, 0.025))
    high = 1.0 if right == n else float(special.betaincinv(right + 1, n - right, 0.975))
    return low, high


def _beta(a: float, b: float) -> Ends:
    return float(special.betaincinv(a, b, 0.025)), float(special.betaincinv(a, b, 0.975))


def _around(middle: float, error: float) -> Ends:
    return middle - Z * error, middle + Z * error


def of_repeats(values: Sequence[float], measured: Sequence[RepeatMetrics]) -> dict[str, Ends]:
    """The rivals of a mean accuracy over repeats."""
    mean, repeats, test = float(np.mean(values)), len(values), measured[0].n_test
    train = measured[0].drawn or measured[0].n_train
    found = {
        "Wilson of one repeat": wilson(mean, test),
        "Wilson of distinct rows": wilson(mean, measured[0].tested or test),
    }
    if repeats > 1:
        plain, corrected = (corrected_t(values, n_train=train, n_test=n) for n in (0, test))
        found["plain t"] = plain.low, plain.high
        if min(values) == max(values):
            found["corrected t"] = mean, mean
        else:
            found["corrected t"] = corrected.low, corrected.high
    return found


def of_pairs(
    first: Sequence[float], second: Sequence[float], info: ResamplingInfo
) -> dict[str, Ends]:
    """The rivals of a difference of mean accuracies over the same repeats."""
    found = {}
    if len(first) > 1:
        pair = paired_t(first, second, n_train=info.n_train, n_test=info.n_test).interval
        flat = np.isnan(pair.low)
        found["corrected paired t"] = (pair.mean, pair.mean) if flat else (pair.low, pair.high)
    rows = round(info.distinct_rows(len(first)))
    apart = two_proportions(float(np.mean(first)), float(np.mean(second)), rows).interval
    found["two proportions, unpaired"] = apart.low, apart.high
    return found
