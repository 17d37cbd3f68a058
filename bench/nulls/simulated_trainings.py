"""Verdicts of finetune, graft and inject on simulated test rows.

Null: all models have the same true score, so no difference is true. Margin: the true difference is
exactly the margin below which two scores count as equal, so no absence is true.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.nulls.answers import ALIKE, Likeness, Run, simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.conclusions import MARGIN
from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.measure.shared_rows import (
    BlockScores,
    block_values,
    mean_difference,
    shared_rows_difference,
)
from cutaway.methods.finetune.verdict import finetune_verdict
from cutaway.methods.graft.verdict import forgetting_verdict, learning_verdict
from cutaway.methods.inject.verdict import inject_verdict

CHANCE = 0.5
SMALL, LARGE = 150, 8000
"""Test rows where differences are none, and where they are as large as the margin."""
KINDS = ("base", "tuned", "learned", "random", "movement")
Models = Callable[[np.random.Generator, int], list[BlockScores]]
"""The scores of models on so many test rows."""


def scored(right: NDArray[np.bool_]) -> BlockScores:
    """The accuracy of right and wrong answers, by blocks of rows."""
    rows = len(right)
    return BlockScores(
        block_values(lambda r: float(right[r].mean()), rows), (float(right.mean()),), rows
    )


def similar(accuracies: Sequence[float], like: Likeness) -> Models:
    """Models of these true accuracies, which find the same rows hard."""

    def draw(rng: np.random.Generator, rows: int) -> list[BlockScores]:
        # Half of the rows of a fixed split are test rows.
        found = simulate(rng, accuracies, rows=2 * rows, repeats=1, protocol="fixed", like=like)
        return [BlockScores(one.resampling.blocks[0], one.values, rows) for one in found]

    return draw


def constant(answers: Sequence[int]) -> Models:
    """Models that give every row the same answer, where labels are coin flips."""

    def draw(rng: np.random.Generator, rows: int) -> list[BlockScores]:
        labels = rng.integers(2, size=rows)
        return [scored(labels == answer) for answer in answers]

    return draw


def _interval(score: BlockScores) -> Interval:
    rows = round(score.worth)
    return wilson(score.mean * rows, rows)


def finetune_run(models: Models, rows: int, truth: float = CHANCE) -> Run:
    """Base and tuned model; the majority is at chance."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        labels = rng.integers(2, size=rows)
        most = scored(labels == int(labels.mean() > CHANCE))
        blocks = dict(zip(("base", "tuned", "majority"), [*models(rng, rows), most], strict=True))
        sentences = finetune_verdict(
            {kind: {"accuracy": _interval(one)} for kind, one in blocks.items()}, blocks,
            "accuracy", task="coin", steps=1, rows=32, shots=16,
        )  # fmt: skip
        return Verdict(tuple(sentences), truth)

    return run


def graft_run(models: Models, rows: int) -> Run:
    """Base, tuned model, and three masks."""

    def run(seed: int) -> Verdict:
        found = models(np.random.default_rng(seed), rows)
        blocks = dict(zip(KINDS, found, strict=True))
        scores = {kind: {"accuracy": {"value": one.mean}} for kind, one in blocks.items()}
        scores["learned"]["relative_gain"] = {"value": 0.9}
        sentences = learning_verdict(
            scores, blocks, "accuracy", "coin", size=1, total=100, rows=rows
        )
        return Verdict(tuple(sentences))

    return run


def continual_run(models: Models, rows: int) -> Run:
    """Grafts and sequential training at the end of two tasks."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        difference = mean_difference([shared_rows_difference(*models(rng, rows)) for _ in range(2)])
        line = {"task": "one", "learned": 0.5, "before": 0.5, "end": 0.5}
        means = {way: {"end": 0.5, "forgotten": 0.0} for way in ("graft", "sequential")}
        table = [{**line, "way": way} for way in means]
        return Verdict(tuple(forgetting_verdict(table, means, ["one", "two"], difference, rows)))

    return run


def inject_run(gain: float, texts: int, noise: float) -> Run:
    """Three regularisers forget less than plain training by `gain` nats per text."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        shared = rng.normal(0.5, 0.3, texts)
        points = []
        for name, less in (("none", 0.0), ("ewc", gain), ("kl", gain), ("l2sp", gain)):
            found = corrected_t(shared - less + rng.normal(0, noise, texts), n_train=1, n_test=0)
            ends = {"forgetting_low": found.low, "forgetting_high": found.high}
            point = {"regulariser": name, "strength": 1.0, "exact_match": 0.5}
            points.append({**point, "forgetting": found.mean, **ends})
        return Verdict(tuple(inject_verdict(points, 0.1, "arithmetic", texts)))

    return run


def worlds() -> list[World]:
    """Every simulated world of the methods that train."""
    high, wrong, absent = CHANCE + MARGIN, ("difference",), ("absence",)
    made: list[World] = []
    for name, pair, five in (
        (
            f"equal models, {SMALL} test rows",
            similar([CHANCE] * 2, Likeness()),
            similar([CHANCE] * 5, Likeness()),
        ),
        (f"constant answers, {SMALL} test rows", constant((0, 1)), constant((0, 1, 1, 0, 1))),
    ):
        claims, ends = (*wrong, "interval"), ("continual", "more-weights")
        made += [
            World(name, "finetune", claims, ("*",), finetune_run(pair, SMALL)),
            World(name, "graft", wrong, ("gain", "keeps", "masks"), graft_run(five, SMALL)),
            World(f"two tasks, {name}", "graft", wrong, ends, continual_run(pair, SMALL)),
        ]
    apart = f"{MARGIN} apart, {LARGE:,} test rows"
    tuned, better = similar([CHANCE, high], ALIKE), similar([high, CHANCE], ALIKE)
    masks = similar([CHANCE, high, high, CHANCE, CHANCE], ALIKE)
    return [
        *made,
        World("equal trainings, 60 texts", "inject", wrong, ("*",), inject_run(0.0, 60, 0.1)),
        World(apart, "finetune", absent, ("*",), finetune_run(tuned, LARGE, high)),
        World(apart, "graft", absent, ("gain", "masks"), graft_run(masks, LARGE)),
        World(f"two tasks, {apart}", "graft", absent, ("continual",), continual_run(better, LARGE)),
        World(f"{MARGIN} apart, 4,000 texts", "inject", absent, ("*",),
              inject_run(MARGIN, 4000, 0.1)),
    ]  # fmt: skip
