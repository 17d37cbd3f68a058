"""Whether scores chosen on validation rows are what they seem: null labels, and confirmation.

Null labels: the features of 31 layers x 2 poolers are read once, the labels are shuffled again and
again, and each time the whole grid of 186 cells is fitted. The headline's interval must contain
chance, no layer may be called worse than another, and the best cell on the test rows shows what
choosing on them adds. Confirmation: the real labels, of which small sets are drawn; the score that
each of them reports is compared with the score of the same choice on all the other rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cutaway
from bench.report import row
from cutaway.core.textset import Task, TextSet
from cutaway.data.load import load_text_set
from cutaway.data.main_metric import main_metric
from cutaway.measure.intervals import Interval
from cutaway.measure.jackknife import assign_blocks
from cutaway.measure.repeats import RepeatMetrics, metric_interval, resampling_info
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.methods.probe.evidence import (
    Evidence,
    ProbeScore,
    best_on_test_facts,
    headline_facts,
)
from cutaway.methods.probe.maths.cell import ProbeOutcome, probe_splits

MODEL, DATA = "smollm2-135m", "gen:sentiment?n=3000"
CLASSIFIERS = ("lda", "ridge", "nb")
RUNS, ROWS, WIDTH = 200, 500, 32
"""Runs of each kind, rows of a run, principal components of the features (for speed)."""
PARTS = (0.7, 0.1, 0.2)
ONE_SPLIT = SplitPlan(protocol="fixed")
Features = Mapping[tuple[str, str], torch.Tensor]


@dataclass(frozen=True, eq=False)
class LabelledStates:
    """The states of every layer and pooler, with the labels of the texts."""

    features: Features
    labels: NDArray[Any]
    task: Task = "binary"
    classes: tuple[str, ...] = ("0", "1")
    metric: str = "accuracy"

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> "LabelledStates":
        """Some of the rows."""
        some = {name: x[rows] for name, x in self.features.items()}
        return replace(self, features=some, labels=self.labels[rows])

    def fit(self, cell: tuple[str, str, str], splits: tuple[Split, ...]) -> list[ProbeOutcome]:
        """One cell (layer, pooler, classifier) on these splits."""
        layer, pool, name = cell
        return probe_splits(
            self.features[layer, pool], self.labels, splits, name, task=self.task,
            classes=self.classes, metric=self.metric,
        )  # fmt: skip


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Coverage of chance and of a confirmation set's score, and false claims about layers."""
    count, runs = rows or (300 if quick else 3000), 3 if quick else RUNS
    small = min(ROWS, count // 3)
    states = read_states(MODEL, load_text_set(DATA, limit=count), layers=(0, 15) if quick else None)
    null = [null_run(states, small, seed) for seed in range(runs)]
    confirmed = [confirm(states, small, seed) for seed in range(runs)]
    covered = float(np.mean([one["covered"] for one in null]))
    false = float(np.mean([one["worse"] > 0 for one in null]))
    agreed = float(np.mean([one["in_interval"] for one in confirmed]))
    best, gain = (float(np.mean([one[name] for one in null])) for name in ("best", "gain"))
    cells = len(states.features) * len(CLASSIFIERS)
    return {
        "title": "Scores chosen on validation rows",
        "text": f"{MODEL} on {count} rows of {DATA}, {cells} cells, {runs} runs of {small} rows, "
        "split 70/10/20. With shuffled labels, the interval of the headline should contain 0.5, "
        "and no layer is worse than another. With the real labels, the headline of a small set is "
        "compared with the score of the same probe on the rows that the set lacks.",
        "table": [
            row("shuffled labels: the interval contains chance", f"{covered:.1%}",
                bar="93 to 97 %", met=0.93 <= covered <= 0.97),
            row("shuffled labels: runs that call a layer worse", f"{false:.1%}",
                bar="at most 5 %", met=false <= 0.05),
            row("shuffled labels: best on test, of which by chance", f"{best:.3f}, {gain:.3f}",
                bar="0.500 without it, within 0.02", met=abs(best - gain - 0.5) < 0.02),
            row("real labels: the confirmation is in the interval", f"{agreed:.1%}",
                bar="at least 93 %", met=agreed >= 0.93),
        ],
    }  # fmt: skip


def read_states(
    model: str, texts: TextSet, layers: tuple[int, ...] | None = None
) -> LabelledStates:
    """The states of every layer and pooler, reduced to their principal components."""
    lm = cutaway.open(model)
    found = {}
    for pool in ("last", "mean"):
        states = lm.read(list(texts.texts), layers="all", pool=pool)
        for layer, values in states.items():
            if layers is None or layer in layers:
                centred = values.float() - values.float().mean(0)
                left, size, _ = torch.svd_lowrank(centred, q=WIDTH)
                found[str(layer), pool] = left * size
    labels = np.asarray(texts.labels)
    return LabelledStates(found, labels, texts.task, texts.classes, main_metric(texts))


def null_run(states: LabelledStates, rows: int, seed: int) -> dict[str, float]:
    """One run of the grid on shuffled labels."""
    rng = np.random.default_rng(seed)
    mine = states.take(rng.permutation(len(states))[:rows])
    shuffled = replace(mine, labels=rng.permutation(np.arange(rows) % 2))
    evidence = measured(shuffled, draw_splits(shuffled, ONE_SPLIT, seed))
    top, best = headline_facts(evidence), best_on_test_facts(evidence)
    shown = [one for one in evidence.other_layers.values() if one.kind == "shown"]
    return {
        "covered": top["low"] <= 0.5 <= top["high"],
        "worse": sum(one.difference.interval.mean > 0 for one in shown),
        "best": best["value"],
        "gain": best["gained_by_chance"],
    }


def confirm(
    states: LabelledStates, rows: int, seed: int, plan: SplitPlan = ONE_SPLIT
) -> dict[str, float]:
    """A small set's headline, and the score of the same fits on the rows that the set lacks."""
    order = np.random.default_rng(seed).permutation(len(states))
    mine, rest = order[:rows], order[rows:]
    small = states.take(mine)
    splits = draw_splits(small, plan, seed)
    evidence = measured(small, splits)
    top = headline_facts(evidence)
    fresh, groups = [], []
    for one, cell in zip(splits, evidence.choice.by_repeat, strict=True):
        elsewhere = Split(one.repeat, mine[one.train], mine[one.val], rest, tested=len(rest))
        (outcome,) = states.fit(cell, (elsewhere,))
        blocks = assign_blocks([rest], len(states))
        scores = outcome.outputs.row_scores(blocks[rest], int(blocks.max()) + 1, states.metric)
        groups.append(RepeatMetrics.of(elsewhere, outcome.metrics, {states.metric: scores}))
        fresh.append(outcome.metrics[states.metric])
    found = metric_interval(fresh, groups, states.metric)
    best = evidence.best_on_test
    return {
        "value": top["value"],
        "confirmed": found.mean,
        "best_on_test": best.mean,
        "in_interval": top["low"] <= found.mean <= top["high"],
        "in_both": within_both(top, found),
        "width": top["high"] - top["low"],
    }


def within_both(top: Mapping[str, float], fresh: Interval) -> bool:
    """Whether the difference to a fresh score is within the noise of both scores."""
    value, gap = top["value"], fresh.mean - top["value"]
    if gap > 0:
        return gap <= float(np.hypot(top["high"] - value, fresh.mean - fresh.low))
    return -gap <= float(np.hypot(value - top["low"], fresh.high - fresh.mean))


def measured(states: LabelledStates, splits: tuple[Split, ...]) -> Evidence:
    """The scores of the whole grid on these splits."""
    blocks = assign_blocks([one.test for one in splits], len(states))
    repeats = tuple(one.repeat for one in splits)
    return Evidence(states.metric, tuple(cells(states, splits, blocks)), repeats=repeats)


def draw_splits(states: LabelledStates, plan: SplitPlan, seed: int) -> tuple[Split, ...]:
    """The splits of a plan; for a fixed one, into parts drawn at random."""
    parts = None
    if plan.protocol == "fixed":
        sizes = [round(share * len(states)) for share in PARTS[:2]]
        names = np.repeat(["train", "dev", "test"], [*sizes, len(states) - sum(sizes)])
        parts = np.random.default_rng([seed, 1]).permutation(names)
    return split(
        states.labels, replace(plan, seed=seed), task=states.task, parts=parts,
        classes=states.classes,
    )  # fmt: skip


def cells(
    states: LabelledStates,
    splits: tuple[Split, ...],
    blocks: NDArray[Any],
    *,
    validated: bool = True,
) -> Iterator[ProbeScore]:
    """Every cell's test scores and, if `validated`, validation scores."""
    metric, count = states.metric, int(blocks.max()) + 1
    for layer, pool in states.features:
        for name in CLASSIFIERS:
            done = states.fit((layer, pool, name), splits)
            group = [
                RepeatMetrics.of(
                    one, found.metrics,
                    {metric: found.outputs.row_scores(blocks[one.test], count, metric)},
                )
                for one, found in zip(splits, done, strict=True)
            ]  # fmt: skip
            values = tuple(found.metrics[metric] for found in done)
            names = (metric, "auc") if validated else ()
            seen = (tuple(f.validation.value(m) for f in done) for m in names)
            yield ProbeScore(values, resampling_info(group, metric), layer, pool, name, *seen)
