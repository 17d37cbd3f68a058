"""What a verdict on a probe run is based on: its scores, and the cell chosen on validation rows.

In each repeat the cell with the best validation score is chosen; its test score in that repeat is
one value of the headline. Baselines, twin and control are read at the same cells. Two scores are
compared on the same splits (`measure/repeats.py`). Needs no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import polars as pl

from cutaway.core.errors import BadData
from cutaway.core.textset import Task, TextSet
from cutaway.data.main_metric import accuracy_warning, choices_score, majority_share
from cutaway.measure.conclusions import Conclusion, conclude, margin_of
from cutaway.measure.intervals import NAN, Interval
from cutaway.measure.metrics import METRICS
from cutaway.measure.selection import (
    CellScore,
    Choice,
    MetricEvidence,
    choose,
    chosen_values,
    finite_or_none,
    holm,
    nested_resampling,
    rows_tested,
    rows_unit,
)

CELL_COLUMNS = ("layers", "pool", "classifier")
CellName = tuple[str, str, str]
"""The values of CELL_COLUMNS."""


@dataclass(frozen=True)
class ProbeScore(CellScore):
    """One metric of a layer with its pooler and classifier."""

    layers: str = "-"
    pool: str = "text"
    classifier: str = ""
    validation: tuple[float, ...] = ()
    """The same metric on the validation rows."""
    ties: tuple[float, ...] = ()
    """The metric that decides between equal validation scores."""

    @property
    def name(self) -> CellName:
        """Layers, pooler and classifier."""
        return self.layers, self.pool, self.classifier


@dataclass(frozen=True)
class Evidence(MetricEvidence):
    """The scores that a verdict is based on; what was not measured is left out."""

    cells: tuple[ProbeScore, ...]
    baselines: Mapping[str, ProbeScore] = field(default_factory=dict)
    """By name: majority, bow, tfidf."""
    twins: tuple[ProbeScore, ...] = ()
    """The same cells of the model with random weights."""
    controls: tuple[ProbeScore, ...] = ()
    """The same cells on the control task (random labels by word)."""
    control_seen: float | None = None
    """The share of the control task's test rows whose word occurs in training."""
    mdl: tuple[float, float, float] | None = None
    """Online code length at the chosen cell, of the prior code and of the uniform code, in bits."""
    repeats: tuple[int, ...] = ()
    """The number of each repeat, in the order of the values."""
    level: float = 0.05
    task: Task = "binary"
    warning: str = ""
    """The sentence on an accuracy at or below that of the most frequent class."""
    repeat_name: str = "repeat"
    """What a split is called: repeat or fold."""
    curve_rows: int | None = None
    """The largest training size of a learning curve, which is the one that is judged."""

    @property
    def constant(self) -> str:
        """What the baseline that answers every text alike is called."""
        return {"regression": "mean", "multilabel": "constant"}.get(self.task, "majority")

    @cached_property
    def measured(self) -> tuple[ProbeScore, ...]:
        """The cells that have a value; BadData if none has."""
        found = tuple(cell for cell in self.cells if cell.known)
        if not found:
            raise BadData(f"No cell has a value of {self.metric!r}: there is nothing to compare.")
        return found

    @cached_property
    def choice(self) -> Choice[CellName]:
        """The cells chosen on validation rows."""
        scores = np.array([cell.validation for cell in self.measured])
        # Nothing to choose by (one label in all validation rows): all cells are equal.
        scores[:, np.isnan(scores).all(axis=0)] = 0.0
        return choose(
            {cell.name: row for cell, row in zip(self.measured, scores.tolist(), strict=True)},
            ties={cell.name: cell.ties for cell in self.measured},
            higher_is_better=self.facts.higher_is_better,
        )

    def choices(self) -> dict[CellName, tuple[int, ...]]:
        """The repeats in which each chosen cell was chosen."""
        found: dict[CellName, tuple[int, ...]] = {}
        for repeat, name in zip(self.repeats, self.choice.by_repeat, strict=True):
            found[name] = (*found.get(name, ()), repeat)
        return found

    @cached_property
    def headline(self) -> ProbeScore:
        """The chosen cell's test score in each repeat, named for the best mean validation score."""
        by_name = {cell.name: cell for cell in self.measured}
        chosen = [by_name[name].resampling for name in self.choice.by_repeat]
        values = chosen_values(self.choice, {name: cell.values for name, cell in by_name.items()})
        best = by_name[self.choice.key]
        return replace(best, values=values, resampling=nested_resampling(chosen))

    @property
    def agreeing(self) -> int:
        """In how many repeats the cell that names the headline was chosen."""
        return self.choice.by_repeat.count(self.choice.key)

    def at_choice(self, others: Sequence[ProbeScore]) -> ProbeScore | None:
        """Scores of another kind (twin, control) at the cell chosen in each repeat."""
        by_name = {other.name: other for other in others}
        found = [by_name.get(name) for name in self.choice.by_repeat]
        values = tuple(NAN if one is None else one.values[r] for r, one in enumerate(found))
        if all(isnan(value) for value in values):
            return None
        some = next(one for one in found if one is not None)
        empty = replace(some.resampling, blocks=())
        drawn = nested_resampling([empty if one is None else one.resampling for one in found])
        return replace(some, values=values, resampling=drawn)

    @cached_property
    def best_on_test(self) -> ProbeScore:
        """The cell with the best mean on the test rows."""
        return self.best_of(self.measured)

    @cached_property
    def chance_gain(self) -> float:
        """What choosing the best cell on the test rows adds to its score by chance, or NaN."""
        return self.gain_of_choosing(self.measured)

    @property
    def rows(self) -> int:
        """The test rows of a repeat."""
        return rows_tested(self.headline)

    @property
    def unit(self) -> str:
        """What `rows` counts."""
        return rows_unit(len(self.headline.values), f"{self.repeat_name}s")

    @property
    def test(self) -> str:
        """The name of the test of a difference."""
        known = self.headline.resampling.blocks
        return "paired t over blocks of test rows" if known else "corrected paired t over repeats"

    def compare(self, other: ProbeScore) -> Conclusion:
        """Whether the headline differs from another score."""
        return self.conclusion(self.headline, other, self.level)

    @cached_property
    def other_layers(self) -> dict[str, Conclusion]:
        """Whether the headline differs from each other layer with its pooler and classifier.

        All differences that are shown, and all that are shown to be absent, hold the level
        together: Holm's test for the first, Bonferroni's correction for the second.
        """
        top = self.headline
        others = [
            cell
            for cell in self.measured
            if cell.name[1:] == top.name[1:] and cell.layers != top.layers
        ]
        found = [self.difference(top, cell) for cell in others]
        shown = holm([one.p for one in found], self.level)
        margin, many = margin_of(self.metric), max(1, len(others))
        made = {}
        for cell, one, claim in zip(others, found, shown, strict=True):
            # What Holm's test does not show is never shown, whatever its own p value.
            settled = one if claim else replace(one, p=NAN)
            level = self.level if claim else self.level / many
            conclusion = conclude(settled, margin=margin, rows=self.rows, level=level)
            made[cell.layers] = replace(conclusion, difference=one)
        return made


def headline_facts(evidence: Evidence) -> dict[str, Any]:
    """The headline for the summary."""
    top, span = evidence.headline, evidence.interval(evidence.headline)
    chosen = evidence.agreeing if len(evidence.measured) > 1 else len(top.values)
    return {
        **_facts(top, span), "chosen_on": "validation", "chosen_in": chosen,
        "repeats": len(top.values),
    }  # fmt: skip


def best_on_test_facts(evidence: Evidence) -> dict[str, Any]:
    """The best cell on the test rows, with an interval that includes its choice."""
    top, gain = evidence.best_on_test, evidence.chance_gain
    span = evidence.interval_of_best(top, gain)
    return {
        **_facts(top, span), "chosen_on": "test", "cells": len(evidence.measured),
        "gained_by_chance": finite_or_none(gain), "repeats": len(top.values),
    }  # fmt: skip


def warn_accuracy(
    rows: pl.DataFrame, chosen: Mapping[int, CellName], texts: TextSet, *, protocol: str
) -> str:
    """The sentence on choices whose accuracy is not above the majority's; empty if it is.

    `chosen` are the cells chosen in each repeat.
    """
    if texts.task not in ("binary", "multiclass"):
        return ""
    done = rows.filter((pl.col("status") == "done") & pl.col("metric").is_in(["accuracy", "auc"]))
    if protocol == "curve":
        done = done.filter(pl.col("n_train") == pl.col("n_train").max())
    where = {
        repeat: dict(zip(("kind", *CELL_COLUMNS), ("probe", *cell), strict=True))
        for repeat, cell in chosen.items()
    }
    base = (pl.col("kind") == "baseline") & (pl.col("classifier") == "majority")
    reached = done.filter(base & (pl.col("metric") == "accuracy")).select(pl.mean("value")).item()
    accuracy, auc = (choices_score(done, name, where) for name in ("accuracy", "auc"))
    return accuracy_warning(accuracy, auc, majority_share(texts) if reached is None else reached)


def chance_level(texts: TextSet, metric: str) -> float | None:
    """The score of the same answer to every text: the most frequent class, or the mean."""
    function, labels = METRICS[metric.removesuffix("_ref")], np.asarray(texts.labels)
    if function.needs == "score":
        shape = (len(labels), len(texts.classes)) if texts.task != "binary" else len(labels)
        return finite_or_none(function(labels, np.zeros(shape)))
    if texts.task in ("binary", "multiclass"):
        answer = np.bincount(labels.astype(np.int64)).argmax()
    else:
        answer = labels.mean(axis=0)
        answer = answer if texts.task == "regression" else (answer > 0.5).astype(np.int64)
    return finite_or_none(function(labels, np.broadcast_to(answer, labels.shape)))


def _facts(score: ProbeScore, span: Interval) -> dict[str, Any]:
    where = {"layers": score.layers, "pool": score.pool, "classifier": score.classifier}
    return {
        "value": score.mean,
        "low": finite_or_none(span.low),
        "high": finite_or_none(span.high),
        **where,
    }
