"""Models that are measured on the same test rows: how they differ.

Answers of two models to the same rows are correlated: positively where the same rows are hard, but
negatively where one model answers every row "yes" and the other "no". A test that takes the rows
for different ones is then wrong in either direction, so models are compared block by block
(`jackknife.py`), as cells of a probe are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.intervals import (
    Difference,
    Interval,
    t_p_value,
    t_quantile,
    welch_freedom,
)
from cutaway.measure.jackknife import N_BLOCKS, assign_blocks, pseudo_values
from cutaway.measure.metrics import metric_facts
from cutaway.measure.repeats import ResamplingInfo, mean_interval

TEST = "paired t over blocks of test rows"
"""What sentences call the test of `shared_rows_difference`."""


@dataclass(frozen=True)
class BlockScores:
    """A score on a set of test rows, and what each block of rows contributes to it."""

    blocks: tuple[float, ...]
    """Pseudo-values, one per block; the mean over trainings if there are several."""
    values: tuple[float, ...]
    """The score of every training."""
    worth: float = 0.0
    """Rows that a perfect score is worth; 0 for metrics that are not made of right and wrong."""

    @property
    def mean(self) -> float:
        """The mean over trainings."""
        return float(np.mean(self.values))


def block_values(value: Callable[[NDArray[np.int64]], float], rows: int) -> tuple[float, ...]:
    """The pseudo-values of a metric, which `value` measures on some of these rows."""
    blocks = assign_blocks([np.arange(rows)], rows)
    return pseudo_values(value, blocks, min(N_BLOCKS, rows))


def mean_block_scores(trainings: Sequence[BlockScores]) -> BlockScores:
    """The scores of several trainings on the same rows as one; no blocks if one has none."""
    values = tuple(value for one in trainings for value in one.values)
    if len({len(one.blocks) for one in trainings}) > 1:
        return BlockScores((), values, trainings[0].worth)
    blocks = np.mean([one.blocks for one in trainings], axis=0)
    return BlockScores(tuple(blocks.tolist()), values, trainings[0].worth)


def seeds_interval(seeds: Sequence[BlockScores], metric: str) -> Interval:
    """The interval of a mean over trainings with several seeds on the same test rows.

    Narrower than `over_seeds` of the seeds' own intervals, which don't say how alike the answers
    of two seeds are.
    """
    facts, worth = metric_facts(metric), seeds[0].worth
    rows = worth if facts.proportion else 1.0
    basis = ResamplingInfo(rows, rows, rows, tuple(one.blocks for one in seeds), worth)
    values = [one.mean for one in seeds]
    return mean_interval(values, basis, share=facts.proportion, bounds=facts.bounds)


def shared_rows_difference(
    first: BlockScores, second: BlockScores, *, level: float = 0.95
) -> Difference:
    """First minus second, with its interval and p value.

    The spread between the trainings of each is added to the error due to the rows, and one row on
    which the models disagree, half in each direction (Agresti and Min 2005).
    """
    gap, n = first.mean - second.mean, min(len(one.values) for one in (first, second))
    same = len(first.blocks) == len(second.blocks)
    apart = np.subtract(first.blocks, second.blocks) if same else np.zeros(0)
    if len(apart) < 2 or isnan(gap) or bool(np.isnan(apart).any()):
        return Difference(Interval(gap, nan, nan, level, n), nan)
    parts = [(float(apart.var(ddof=1)) / len(apart), len(apart) - 1.0)]
    parts += [
        (float(np.var(one.values, ddof=1)) / len(one.values), len(one.values) - 1.0)
        for one in (first, second)
        if len(one.values) > 1
    ]
    added = 1.0 / (first.worth + 1) ** 2 if first.worth else 0.0
    return _from_parts(gap, parts, added, n, level)


def mean_difference(found: Sequence[Difference]) -> Difference:
    """The mean of differences that were measured on independent sets of rows."""
    spans, count = [one.interval for one in found], len(found)
    gap, level = float(np.mean([span.mean for span in spans])), spans[0].level
    halves = [(span.high - span.low) / 2 for span in spans]
    if any(map(isnan, halves)):
        return Difference(Interval(gap, nan, nan, level, count), nan)
    parts = [
        ((half / t_quantile(one.freedom, level) / count) ** 2, one.freedom)
        for half, one in zip(halves, found, strict=True)
    ]
    return _from_parts(gap, parts, 0.0, count, level)


def _from_parts(
    gap: float, parts: Sequence[tuple[float, float]], added: float, n: int, level: float
) -> Difference:
    """The t test of a difference whose variance is a sum of (variance, degrees of freedom)."""
    error = sqrt(sum(variance for variance, _ in parts) + added)
    if error == 0.0:
        # Equal in every row: no difference, or one that nothing is known about.
        ends = (gap, gap) if gap == 0.0 else (nan, nan)
        return Difference(Interval(gap, *ends, level, n), 1.0 if gap == 0.0 else nan)
    freedom = welch_freedom(*parts)
    reach = t_quantile(freedom, level) * error
    span = Interval(gap, gap - reach, gap + reach, level, n, freedom)
    return Difference(span, t_p_value(freedom, abs(gap) / error), freedom)
