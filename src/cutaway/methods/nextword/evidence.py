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

from cutaway.measure.conclusions import Conclusion
from cutaway.measure.intervals import Interval
from cutaway.measure.repeats import ResamplingInfo
from cutaway.measure.selection import (
    CellScore,
    MetricEvidence,
    choose,
    chosen_values,
    finite_or_none,
    nested_resampling,
    rows_tested,
    rows_unit,
)
from cutaway.methods.nextword.rows import NextwordCell

BASELINES = ("majority", "bow", "tfidf")
LEVEL = 0.05


@dataclass(frozen=True)
class FeatureScore(CellScore):
    """The main metric of a feature kind under a prompt."""

    prompt: str
    features: str
    validation: tuple[float, ...]
    """The same metric on rows of the training part; NaN where it wasn't measured."""

    @property
    def key(self) -> tuple[str, str]:
        """Prompt and feature kind."""
        return self.prompt, self.features


@dataclass(frozen=True)
class ChosenFeature:
    """The cell chosen on validation rows, and its test scores."""

    score: FeatureScore
    """The test score of each repeat's own choice, under the name of the cell with the best mean
    validation score."""
    by_repeat: tuple[tuple[str, str], ...]
    """Prompt and feature kind chosen in each repeat."""

    @property
    def agreeing(self) -> int:
        """The number of repeats that chose the cell of that name."""
        return self.by_repeat.count(self.score.key)


@dataclass(frozen=True)
class FeatureEvidence(MetricEvidence):
    """The scores of one model on one task."""

    cells: tuple[FeatureScore, ...]
    baselines: Mapping[str, FeatureScore]

    @property
    def every(self) -> tuple[FeatureScore, ...]:
        """The cells, then the baselines."""
        return (*self.cells, *self.baselines.values())

    @property
    def rows(self) -> int:
        """The number of test rows of a repeat."""
        return rows_tested(self.cells[0])

    @property
    def repeats(self) -> int:
        """The number of repeats."""
        return len(self.cells[0].values)

    @property
    def unit(self) -> str:
        """What `rows` counts."""
        return rows_unit(self.repeats, "splits")

    @property
    def test(self) -> str:
        """The name of the paired test that compares two cells."""
        if self.repeats == 1:
            return "paired t over blocks of test rows"
        return f"paired t over blocks of the test rows of {self.repeats} splits"

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
        return ChosenFeature(score, found.by_repeat)

    def compare(self, first: FeatureScore, second: FeatureScore, *, among: int = 1) -> Conclusion:
        """Whether the first is better; `among` so many comparisons that hold the level together."""
        return self.conclusion(first, second, LEVEL / among)

    def headline_facts(self, chosen: ChosenFeature) -> dict[str, Any]:
        """The headline for the summary."""
        span = self.interval(chosen.score)
        return {
            **self._facts(chosen.score, span), "chosen_on": "validation",
            "chosen_in": chosen.agreeing, "repeats": self.repeats,
        }  # fmt: skip

    def best_on_test_facts(self) -> dict[str, Any]:
        """The best cell on the test rows, and what choosing it there adds by chance."""
        top, gain = self.best_of(self.cells), self.gain_of_choosing(self.cells)
        span = self.interval_of_best(top, gain)
        return {
            **self._facts(top, span), "chosen_on": "test", "cells": len(self.cells),
            "gained_by_chance": finite_or_none(gain), "repeats": self.repeats,
        }  # fmt: skip

    def _facts(self, score: FeatureScore, span: Interval) -> dict[str, Any]:
        majority = self.baselines.get("majority")
        return {
            "metric": self.metric, "value": score.mean, "low": finite_or_none(span.low),
            "high": finite_or_none(span.high), "chance": majority.mean if majority else None,
            "prompt": score.prompt, "features": score.features,
        }  # fmt: skip


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
                tuple(nan if v is None else v for v in found["value"]),
                resampling.get(key, ResamplingInfo(train, test)),
                key.prompt,
                key.features,
                tuple(nan if checked.get(r) is None else checked[r] for r in found["repeat"]),
            )
        )
    return FeatureEvidence(
        metric,
        tuple(score for score in scores if score.features not in BASELINES),
        {score.features: score for score in scores if score.features in BASELINES},
    )
