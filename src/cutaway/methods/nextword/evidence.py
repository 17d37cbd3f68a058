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
from cutaway.measure.selection import choose, nested_resampling, selection_gain
from cutaway.methods.nextword.rows import NextwordCell

BASELINES = ("majority", "bow", "tfidf")
LEVEL = 0.05


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
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))


@dataclass(frozen=True)
class ChosenFeature:
    """The cell chosen on validation rows, and its test scores."""

    named: FeatureScore
    """The cell with the best mean validation score."""
    score: FeatureScore
    """The test score of each repeat's own choice, under the name of the former."""
    agreeing: int
    """The number of repeats that chose the cell that gives the name."""


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
    def test(self) -> str:
        """The name of the paired test that compares two cells."""
        if self.repeats == 1:
            return "paired test over blocks of test rows"
        return f"corrected paired t test over {self.repeats} splits"

    def choose(self, among: Sequence[FeatureScore]) -> ChosenFeature | None:
        """The cell chosen on validation rows; None if none of them has a validation score."""
        known = [cell for cell in among if not any(map(isnan, cell.validation))]
        if not known:
            return None
        found = choose(self.sign * np.array([cell.validation for cell in known]))
        each, named = [known[place] for place in found.each], known[found.best]
        score = replace(
            named,
            values=tuple(cell.values[repeat] for repeat, cell in enumerate(each)),
            resampling=nested_resampling([cell.resampling for cell in each]),
        )
        return ChosenFeature(named, score, found.each.count(found.best))

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
        found = mean_interval(score.values, score.resampling, share=self.facts.proportion)
        return clip_interval(found, 0.0, 1.0) if self.facts.bounds == UNIT else found

    def headline_facts(self, chosen: ChosenFeature) -> dict[str, Any]:
        """The headline for the summary."""
        span = self.interval(chosen.score)
        return {
            **self._facts(chosen.score, span), "chosen_on": "validation",
            "chosen_in": chosen.agreeing, "repeats": self.repeats,
        }  # fmt: skip

    def best_on_test_facts(self) -> dict[str, Any]:
        """The best cell on the test rows, and what choosing it there adds by chance."""
        top = max(self.cells, key=lambda cell: self.sign * cell.mean)
        values = self.sign * np.array([cell.values for cell in self.cells])
        gain = selection_gain(values, [cell.resampling for cell in self.cells])
        span = self.interval(top)
        if len(self.cells) > 1:
            ends = sorted(top.mean - self.sign * end for end in (gain.low, gain.high))
            span = Interval(top.mean, ends[0], ends[1], 0.95, self.repeats)
            span = clip_interval(span, 0.0, 1.0) if self.facts.bounds == UNIT else span
        return {
            **self._facts(top, span), "chosen_on": "test", "cells": len(self.cells),
            "gained_by_chance": _finite(gain.mean), "repeats": self.repeats,
        }  # fmt: skip

    def _facts(self, score: FeatureScore, span: Interval) -> dict[str, Any]:
        majority = self.baselines.get("majority")
        return {
            "metric": self.metric, "value": score.mean, "low": _finite(span.low),
            "high": _finite(span.high), "chance": majority.mean if majority else None,
            "prompt": score.prompt, "features": score.features,
        }  # fmt: skip


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
