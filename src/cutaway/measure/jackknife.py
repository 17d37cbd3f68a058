"""What the test rows tell about the error of a metric: the jackknife over blocks of rows.

The rows are dealt into 20 blocks, the same for all cells and repeats. A pseudo-value is what a
block contributes to the metric. The spread of the pseudo-values gives the variance of the metric
due to the choice of its rows (Efron and Tibshirani 1993), whatever the metric, and the spread of
the differences between two cells that of their difference. Pseudo-values of all repeats are
averaged block by block, so that a row that is tested in several repeats counts as one row.

Near a perfect score there are too few errors for that: with no error at all the variance would be
0. `RowScores.perfect_rows` is the number of rows that a perfect score is worth, from which
`repeats.py` has the variance that it is mixed with.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.calibration import reliability
from cutaway.measure.intervals import Difference, Interval
from cutaway.measure.metrics import metric_facts
from cutaway.measure.repeats import (
    DECISION_ERRORS,
    RANK_ERRORS,
    RepeatMetrics,
    RowScores,
    metric_interval,
    paired_difference,
    resampling_info,
)

RowIndices = NDArray[np.int64]
NAN = float("nan")
N_BLOCKS = 20
"""Blocks of test rows."""


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


def row_scores(
    metric: str,
    truth: NDArray[Any],
    value: Callable[[RowIndices], float],
    blocks: RowIndices,
    count: int,
    *,
    probabilities: NDArray[Any] | None = None,
) -> RowScores:
    """The pseudo-values of a metric by name, and what a perfect score of it is worth.

    `probabilities` are needed for the bias of the calibration error.
    """
    values = pseudo_values(value, blocks, count)
    name = metric.removesuffix("_ref")
    if name == "ece":
        bias = 0.0 if probabilities is None else calibration_bias(probabilities, truth)
        return RowScores(values, bias=bias)
    ranked = name in ("auc", "ap")
    return RowScores(values, perfect_rows(name, truth), RANK_ERRORS if ranked else DECISION_ERRORS)


def one_set_interval(
    metric: str,
    truth: NDArray[Any],
    value: Callable[[RowIndices], float],
    *,
    probabilities: NDArray[Any] | None = None,
) -> Interval:
    """The interval of a metric on one test set; `value` measures some of its rows."""
    measured = _test_set(metric, truth, value, probabilities)
    found = metric_interval([measured.metrics[metric]], [measured], metric)
    return replace(found, n=len(truth))


def one_set_difference(
    metric: str,
    truth: NDArray[Any],
    first: Callable[[RowIndices], float],
    second: Callable[[RowIndices], float],
) -> Difference:
    """First minus second on the same test rows."""
    pair = [_test_set(metric, truth, value, None) for value in (first, second)]
    one, two = ([measured.metrics[metric]] for measured in pair)
    mine, other = (resampling_info([measured], metric) for measured in pair)
    return paired_difference(one, two, mine, other, share=metric_facts(metric).proportion)


def _test_set(
    metric: str,
    truth: NDArray[Any],
    value: Callable[[RowIndices], float],
    probabilities: NDArray[Any] | None,
) -> RepeatMetrics:
    n = len(truth)
    blocks = assign_blocks([np.arange(n)], n)
    count = int(blocks.max()) + 1
    scores = row_scores(metric, truth, value, blocks, count, probabilities=probabilities)
    whole = {metric: value(np.arange(n))}
    return RepeatMetrics(0, n, 0, n, whole, tested=n, rows={metric: scores})


def perfect_rows(metric: str, truth: NDArray[Any]) -> float:
    """The rows that a perfect score is worth: an error in a rare class costs more than one row.

    With n rows, the lower bound of a perfect score is n / (n + z^2), as Wilson's. Metrics that give
    each class the same weight count c^2 / sum(1 / n_k) rows, which is n for equal classes; F1 and
    average precision of one class count its rows twice.
    """
    if metric in VALUE_METRICS:
        return 0.0
    if metric in ("accuracy", "f1_micro"):
        return float(len(truth))
    if truth.ndim == 2:
        positive = truth.sum(axis=0)
        return 2.0 * float(_harmonic_mean(positive[positive > 0]))
    if metric in ("f1", "ap") and int(truth.max(initial=1)) <= 1:
        return 2.0 * max(1.0, float((truth == 1).sum()))
    counts = np.unique(truth, return_counts=True)[1]
    return len(counts) * _harmonic_mean(counts)


VALUE_METRICS = frozenset({"r2", "mse", "spearman", "pearson", "log_rmse", "ece"})
"""Metrics that are not made of right and wrong decisions or ranks."""


def _harmonic_mean(counts: NDArray[Any]) -> float:
    return float(len(counts) / np.sum(1.0 / counts)) if len(counts) else 1.0


def calibration_bias(probabilities: NDArray[Any], labels: NDArray[Any]) -> float:
    """How much the calibration error exceeds that of infinitely many rows, on average.

    A bin's gap g has a standard error s, and the mean of |g| exceeds the true gap's (the mean of a
    folded normal distribution). The true gap is estimated by sqrt(g^2 - s^2).
    """
    bins = reliability(np.asarray(probabilities, dtype=np.float64), labels)
    used = bins.count > 0
    right, sure, count = bins.accuracy[used], bins.confidence[used], bins.count[used]
    share = (right * count + sure) / (count + 1)
    error = np.sqrt(np.maximum(share * (1 - share), 1e-12) / count)
    gap = np.sqrt(np.maximum((right - sure) ** 2 - error**2, 0.0))
    ratio = gap / error
    folded = error * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + gap * _central(ratio)
    return float((folded - gap) @ count / count.sum())


def _central(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of a normal distribution within z standard deviations."""
    from scipy import special  # imported on first use, so that pages of the report load quickly

    return np.asarray(special.erf(z / np.sqrt(2)))
