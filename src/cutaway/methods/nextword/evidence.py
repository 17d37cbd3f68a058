"""What a verdict on a nextword run is based on: its scores, and the cell chosen without test rows.

A cell is a feature kind under a prompt. In each repeat the one with the best validation score is
chosen: that of the held-out folds which choose C, or, for zero-shot, of the training rows. Its test
score is one value of the headline. Baselines are read on the same splits. Needs no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

import numpy as np
import polars as pl

from cutaway.measure.conclusions import Conclusion, conclude, margin_of
from cutaway.measure.intervals import Difference, Interval, clip_interval, negate
from cutaway.measure.metrics import UNIT, MetricFacts, metric_facts
from cutaway.measure.repeats import ResamplingInfo, mean_interval, paired_difference
from cutaway.measure.selection import chance_gain, choose, chosen_values, nested_resampling
from cutaway.methods.nextword.rows import NextwordCell

BASELINES = ("majority", "bow", "tfidf")
LEVEL = 0.05
NORMAL_95 = 1.96


@dataclass(frozen=True)
class FeatureScore:
    """The main metric of a cell over its repeats, in the order of the splits."""

    prompt: str
    features: str
    values: tuple[float, ...]
    validation: tuple[float, ...]
    """The same metric on rows of the training part; NaN where it wasn't measured."""
    resampling: ResamplingInfo

    @property
    def key(self) -> tuple[str, str]:
        """Prompt and feature kind."""
        return self.prompt, self.features

    @property
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))


@dataclass(frozen=True)
class ChosenFeature:
    """The cell chosen on validation rows, and its test scores."""

    score: FeatureScore
    """The test score of each repeat's own choice, under the name of the cell with the best mean
    validation score."""
    agreeing: int
    """The number of repeats that chose the cell of that name."""


@dataclass(frozen=True)
class FeatureEvidence:
    """The scores of one model on one task."""

    metric: str
    cells: tuple[FeatureScore, ...]
    baselines: Mapping[str, FeatureScore]

    @property
    def facts(self) -> MetricFacts:
        """Direction and range of the metric."""
        return metric_facts(self.metric)

    @property
    def sign(self) -> float:
        """1 for metrics where higher is better, else -1."""
        return 1.0 if self.facts.higher_is_better else -1.0

    @property
    def rows(self) -> int:
        """The number of test rows of a repeat."""
        return max(1, round(self.cells[0].resampling.n_test))

    @property
    def repeats(self) -> int:
        """The number of repeats."""
        return len(self.cells[0].values)

    @property
    def unit(self) -> str:
        """What `rows` counts."""
        several = self.repeats > 1
        return f"test rows in each of {self.repeats} splits" if several else "test rows"

    @property
    def test(self) -> str:
        """The name of the paired test that compares two cells."""
        if self.repeats == 1:
            return "paired test over blocks of test rows"
        return f"paired test over blocks of the test rows of {self.repeats} splits"

    def choose(self, among: Sequence[FeatureScore]) -> ChosenFeature | None:
        """The cell chosen on validation rows; None if none of them has a validation score."""
        known = {cell.key: cell for cell in among if not any(map(isnan, cell.validation))}
        if not known:
            return None
        found = choose(
            {key: cell.validation for key, cell in known.items()},
            higher_is_better=self.facts.higher_is_better,
        )
        named = known[found.key]
        score = replace(
            named,
            values=chosen_values(found, {key: cell.values for key, cell in known.items()}),
            resampling=nested_resampling([known[key].resampling for key in found.by_repeat]),
        )
        return ChosenFeature(score, found.by_repeat.count(found.key))

    def difference(self, first: FeatureScore, second: FeatureScore) -> Difference:
        """How much better the first is than the second on the same splits."""
        found = paired_difference(
            first.values, second.values, first.resampling, second.resampling,
            share=self.facts.proportion,
        )  # fmt: skip
        return found if self.sign > 0 else negate(found)

    def compare(self, first: FeatureScore, second: FeatureScore, *, among: int = 1) -> Conclusion:
        """Whether the first is better; `among` so many comparisons that hold the level together."""
        found, margin = self.difference(first, second), margin_of(self.metric)
        return conclude(found, margin=margin, rows=self.rows, level=LEVEL / among)

    def interval(self, score: FeatureScore) -> Interval:
        """The 95 % interval of a score, inside the metric's range."""
        facts = self.facts
        return mean_interval(
            score.values, score.resampling, share=facts.proportion, bounds=facts.bounds
        )

    def headline_facts(self, chosen: ChosenFeature) -> dict[str, Any]:
        """The headline for the summary."""
        span = self.interval(chosen.score)
        return {
            **self._facts(chosen.score, span), "chosen_on": "validation",
            "chosen_in": chosen.agreeing, "repeats": self.repeats,
        }  # fmt: skip

    def best_on_test_facts(self) -> dict[str, Any]:
        """The best cell on the test rows, and what choosing it there adds by chance."""
        top, span = self.best_on_test, self.interval(self.best_on_test)
        gain = self.chance_gain
        # Towards chance it reaches as much further as the choice may have added.
        low, high = (span.low - gain, span.high) if self.sign > 0 else (span.low, span.high + gain)
        span = replace(span, low=low, high=high)
        span = clip_interval(span, 0.0, 1.0) if self.facts.bounds == UNIT else span
        return {
            **self._facts(top, span), "chosen_on": "test", "cells": len(self.cells),
            "gained_by_chance": gain, "repeats": self.repeats,
        }  # fmt: skip

    @property
    def best_on_test(self) -> FeatureScore:
        """The cell with the best mean on the test rows."""
        return max(self.cells, key=lambda cell: self.sign * cell.mean)

    @property
    def chance_gain(self) -> float:
        """What choosing the best cell by its test score adds to that score by chance."""
        units = [cell.resampling.block_means or cell.values for cell in self.cells]
        errors = [_half_width(self.interval(cell)) for cell in self.cells]
        means = [self.sign * cell.mean for cell in self.cells]
        signed = [[self.sign * value for value in some] for some in units]
        return chance_gain(signed, errors=errors, means=means)

    def _facts(self, score: FeatureScore, span: Interval) -> dict[str, Any]:
        majority = self.baselines.get("majority")
        return {
            "metric": self.metric, "value": score.mean, "low": _finite(span.low),
            "high": _finite(span.high), "chance": majority.mean if majority else None,
            "prompt": score.prompt, "features": score.features,
        }  # fmt: skip


def _half_width(span: Interval) -> float:
    """About the standard error: a 95 % interval reaches 1.96 of them."""
    return (span.high - span.low) / 2 / NORMAL_95


def _finite(value: float) -> float | None:
    return None if isnan(value) else value


def feature_evidence(
    rows: pl.DataFrame, metric: str, resampling: Mapping[NextwordCell, ResamplingInfo]
) -> FeatureEvidence:
    """The scores of one model and task, from its rows."""
    done = rows.filter(pl.col("status") == "done").sort("repeat", maintain_order=True)
    scores = []
    for name, cell in done.group_by(["model", "task", "prompt", "features"], maintain_order=True):
        found = cell.filter(pl.col("metric") == metric)
        if found["value"].drop_nulls().is_empty():
            continue
        checked = dict(
            cell.filter(pl.col("metric") == f"{metric}_val").select("repeat", "value").iter_rows()
        )
        train, test = (float(np.mean(found[k].to_numpy())) for k in ("n_train", "n_test"))
        key = NextwordCell(*map(str, name))
        scores.append(
            FeatureScore(
                key.prompt,
                key.features,
                tuple(nan if v is None else v for v in found["value"]),
                tuple(nan if checked.get(r) is None else checked[r] for r in found["repeat"]),
                resampling.get(key, ResamplingInfo(train, test)),
            )
        )
    return FeatureEvidence(
        metric,
        tuple(score for score in scores if score.features not in BASELINES),
        {score.features: score for score in scores if score.features in BASELINES},
    )
