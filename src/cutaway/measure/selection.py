"""Choosing one of many cells (layers, poolers, classifiers, prompts, features) and scoring it.

Choosing by the test scores and reporting the best of them overstates it: of 200 cells that know
nothing, the best looks good. So:

- `choose`: in each repeat, the cell with the best validation score of that repeat.
- `chosen_values`: the test scores of these choices; no test row of a repeat took part in its
  choice, so their mean is unbiased for the procedure "choose on validation rows".
- `chance_gain`: how much choosing the best of so many cells by their test scores adds by chance.
- `holm`: which of many differences are significant if all claims together may be wrong with a
  probability of at most `level`, whatever their dependence (Holm 1979).
- `MetricEvidence`: what the verdicts of all methods need of scores on the same splits: the interval
  of one, the difference between two, what choosing the best of many adds.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import BadData
from cutaway.measure.conclusions import Conclusion, conclude, margin_of
from cutaway.measure.intervals import NAN, Difference, Interval, clip_interval, negate
from cutaway.measure.metrics import UNIT, MetricFacts, metric_facts
from cutaway.measure.repeats import ResamplingInfo, mean_interval, paired_difference

Key = TypeVar("Key", bound=Hashable)
Score = TypeVar("Score", bound="CellScore")
CHANCE_DRAWS = 2000
"""Simulations of the best of many cells."""


@dataclass(frozen=True)
class Choice(Generic[Key]):
    """The cell that validation scores choose."""

    key: Key
    """The cell with the best mean validation score: the one to name."""
    by_repeat: tuple[Key, ...]
    """The choice of each repeat: the one to score."""


def choose(
    validation: Mapping[Key, Sequence[float]],
    *,
    ties: Mapping[Key, Sequence[float]] | None = None,
    higher_is_better: bool = True,
) -> Choice[Key]:
    """The choice by validation scores, one per repeat and cell (NaN for none).

    Of equal scores the one with the highest entry in `ties` is chosen, then the first. BadData if a
    repeat has no score.
    """
    keys, sign = list(validation), 1.0 if higher_is_better else -1.0
    scores = sign * np.array([list(validation[key]) for key in keys], dtype=np.float64)
    missing = np.isnan(scores)
    if scores.size == 0 or bool(missing.all(axis=0).any()):
        raise BadData("No cell has a validation score in some repeat: there is nothing to choose.")
    second = np.array([list(ties[key]) if ties else [0.0] * scores.shape[1] for key in keys])
    second = np.where(np.isnan(second), -np.inf, second)
    merits = np.where(missing, -np.inf, scores)
    means = np.where(missing, 0.0, scores).sum(axis=1) / np.maximum((~missing).sum(axis=1), 1)
    # A cell without a score in some repeat is named only if every cell is like that.
    gaps = missing.all(axis=1) if missing.any(axis=1).all() else missing.any(axis=1)
    means[gaps] = -np.inf
    by_repeat = tuple(keys[_best(*pair)] for pair in zip(merits.T, second.T, strict=True))
    return Choice(keys[_best(means, second.mean(axis=1))], by_repeat)


def _best(scores: NDArray[np.float64], ties: NDArray[np.float64]) -> int:
    # Rounded, because means of equal scores differ in the last digit. lexsort is stable: of equal
    # cells the first comes first.
    return int(np.lexsort((-ties, -np.round(scores, 12)))[0])


def chosen_values(choice: Choice[Key], test: Mapping[Key, Sequence[float]]) -> tuple[float, ...]:
    """The test score of each repeat's choice."""
    return tuple(float(test[key][repeat]) for repeat, key in enumerate(choice.by_repeat))


def nested_resampling(chosen: Sequence[ResamplingInfo]) -> ResamplingInfo:
    """How the repeats were drawn if each was measured with a cell of its own, in their order."""
    blocks = tuple(one.blocks[r] for r, one in enumerate(chosen) if r < len(one.blocks))
    return replace(chosen[0], blocks=blocks)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected, at `level` over all of them; NaN never is."""
    found = np.array([1.0 if isnan(p) else p for p in p_values], dtype=np.float64)
    rejected = [False] * len(found)
    for place, index in enumerate(np.argsort(found, kind="stable")):
        if found[index] * (len(found) - place) >= level:
            break
        rejected[int(index)] = True
    return rejected


def chance_gain(
    scores: ArrayLike, *, errors: ArrayLike, means: ArrayLike | None = None, seed: int = 0
) -> float:
    """The expected excess of the best of many cells, chosen by its test score, over its true score.

    `scores` (cells, units) are scores of the same units of test data: blocks of rows, or repeats.
    From them come the correlations between cells, which are large for neighbouring layers.
    `errors` (cells,) are the standard errors of the cells' means. With fewer than two units the
    cells are taken to be independent, which gives an upper bound.

    Without `means` the cells are taken to be equally good. With the means of their test scores,
    cells that are clearly worse than the best add nothing; of the differences between the others,
    the part that the errors don't explain counts as true (shrunk as by James and Stein 1961).
    """
    units, spread = np.asarray(scores, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    rng = np.random.default_rng(seed)
    if units.ndim < 2 or units.shape[1] < 2:
        drawn = rng.standard_normal((len(spread), CHANCE_DRAWS))
    else:
        apart = units - units.mean(axis=1, keepdims=True)
        size = np.sqrt((apart**2).sum(axis=1, keepdims=True))
        shares = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
        drawn = shares @ rng.standard_normal((units.shape[1], CHANCE_DRAWS))
    drawn = spread[:, None] * drawn
    middle = np.zeros(len(spread))
    if means is not None:
        given = np.asarray(means, dtype=np.float64)
        rivals = _rivals(given, drawn)
        drawn, middle = drawn[rivals], _shrink(given[rivals], drawn[rivals])
    winners = np.argmax(middle[:, None] + drawn, axis=0)
    found = float(drawn[winners, np.arange(drawn.shape[1])].mean())
    return 0.0 if isnan(found) else max(0.0, found)


def _rivals(means: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The cells within three standard errors of the difference from the best."""
    best = int(np.argmax(means))
    reach = (errors[best] - errors).std(axis=1)
    return np.asarray(means[best] - means <= 3 * reach)


def _shrink(means: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The means without the part of their differences that the errors explain."""
    noise, spread = float(errors.var(axis=0).mean()), float(means.var())
    keep = max(0.0, 1.0 - noise / spread) if spread > 0 else 0.0
    return np.asarray(means.mean() + np.sqrt(keep) * (means - means.mean()))


@dataclass(frozen=True)
class CellScore:
    """One metric of one cell over its repeats, in the order of the splits."""

    values: tuple[float, ...]
    resampling: ResamplingInfo

    @property
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))

    @property
    def known(self) -> bool:
        """Whether any repeat has a value."""
        return not all(isnan(value) for value in self.values)


@dataclass(frozen=True)
class MetricEvidence:
    """What scores of one metric allow to say."""

    metric: str

    @property
    def facts(self) -> MetricFacts:
        """Direction and range of the metric."""
        return metric_facts(self.metric)

    @property
    def sign(self) -> float:
        """1 for metrics where higher is better, else -1."""
        return 1.0 if self.facts.higher_is_better else -1.0

    def interval(self, score: CellScore) -> Interval:
        """The 95 % interval of a score, inside the metric's range."""
        facts = self.facts
        return mean_interval(
            score.values, score.resampling, share=facts.proportion, bounds=facts.bounds
        )

    def difference(self, first: CellScore, second: CellScore) -> Difference:
        """How much better the first is than the second on the same splits."""
        found = paired_difference(
            first.values, second.values, first.resampling, second.resampling,
            share=self.facts.proportion,
        )  # fmt: skip
        return found if self.sign > 0 else negate(found)

    def conclusion(self, first: CellScore, second: CellScore, level: float) -> Conclusion:
        """Whether the first is better than the second, at this level."""
        found, margin = self.difference(first, second), margin_of(self.metric)
        return conclude(found, margin=margin, rows=rows_tested(first), level=level)

    def best_of(self, cells: Sequence[Score]) -> Score:
        """The cell with the best mean on the test rows."""
        return max(cells, key=lambda cell: self.sign * cell.mean)

    def gain_of_choosing(self, cells: Sequence[CellScore]) -> float:
        """What choosing the best cell by its test score adds to that score by chance.

        NaN if one split of a metric without an interval can't show it.
        """
        errors = [self.interval(cell).standard_error for cell in cells]
        if any(map(isnan, errors)):
            return NAN
        units = [cell.resampling.block_means or cell.values for cell in cells]
        signed = [[self.sign * value for value in some] for some in units]
        means = [self.sign * cell.mean for cell in cells]
        return chance_gain(signed, errors=errors, means=means)

    def interval_of_best(self, score: CellScore, gain: float) -> Interval:
        """The interval of the best cell on the test rows.

        Towards chance it reaches as much further as the choice may have added.
        """
        span = self.interval(score)
        low, high = (span.low - gain, span.high) if self.sign > 0 else (span.low, span.high + gain)
        span = replace(span, low=low, high=high)
        return clip_interval(span, 0.0, 1.0) if self.facts.bounds == UNIT else span


def rows_tested(score: CellScore) -> int:
    """The test rows of each repeat."""
    return max(1, round(score.resampling.n_test))


def rows_unit(repeats: int, name: str) -> str:
    """What `rows_tested` counts; `name` is what the repeats are called."""
    return f"test rows in each of {repeats} {name}" if repeats > 1 else "test rows"


def finite_or_none(value: float) -> float | None:
    """A finite number, or None: JSON and SQL have no NaN."""
    return float(value) if isfinite(value) else None
