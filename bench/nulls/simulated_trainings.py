"""Verdicts of finetune, graft and inject on simulated test rows.

Null: all models have the same true score, so no difference is true. Margin: the true difference is
exactly the margin below which two scores count as equal, so no absence is true.
"""

from collections.abc import Sequence

import numpy as np

from bench.nulls.answers import ALIKE, Likeness, Run, simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.conclusions import MARGIN
from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.finetune.verdict import finetune_verdict
from cutaway.methods.graft.verdict import forgetting_verdict, learning_verdict
from cutaway.methods.inject.verdict import inject_verdict

CHANCE = 0.5
SMALL, LARGE = 150, 8000
"""Test rows where differences are none, and where they are as large as the margin."""
MASKS = ("learned", "random", "movement")


def _intervals(
    rng: np.random.Generator, accuracies: Sequence[float], rows: int, like: Likeness
) -> list[Interval]:
    """The accuracies that models of these true accuracies reach on the same rows."""
    # Half of the rows of a fixed split are test rows.
    found = simulate(rng, accuracies, rows=2 * rows, repeats=1, protocol="fixed", like=like)
    return [wilson(cell.values[0] * rows, rows) for cell in found]


def finetune_run(gain: float, rows: int, like: Likeness) -> Run:
    """The tuned model is better than the base by `gain`, and the majority is at chance."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        base, tuned = _intervals(rng, [CHANCE, CHANCE + gain], rows, like)
        frequent = max(share := rng.binomial(rows, CHANCE), rows - share)
        scores = {"base": base, "tuned": tuned, "majority": wilson(frequent, rows)}
        sentences = finetune_verdict(
            {kind: {"accuracy": one} for kind, one in scores.items()}, "accuracy", task="coin",
            steps=1, rows=32, shots=16,
        )  # fmt: skip
        return Verdict(tuple(sentences), CHANCE + gain)

    return run


def graft_run(gain: float, rows: int, like: Likeness) -> Run:
    """The tuned model and the learned mask are better than all others by `gain`."""

    def run(seed: int) -> Verdict:
        accuracies = [CHANCE, CHANCE + gain, CHANCE + gain, CHANCE, CHANCE]
        found = _intervals(np.random.default_rng(seed), accuracies, rows, like)
        scores = {
            kind: {"accuracy": {"value": one.mean, "low": one.low, "high": one.high}}
            for kind, one in zip(("base", "tuned", *MASKS), found, strict=True)
        }
        scores["learned"]["relative_gain"] = {"value": 0.9}
        sentences = learning_verdict(scores, "accuracy", "coin", size=1, total=100, rows=rows)
        return Verdict(tuple(sentences))

    return run


def continual_run(gain: float, rows: int, like: Likeness) -> Run:
    """Grafts end better than sequential training by `gain`, on two tasks."""

    def run(seed: int) -> Verdict:
        rng = np.random.default_rng(seed)
        tasks = [_intervals(rng, [CHANCE + gain, CHANCE], rows, like) for _ in range(2)]
        ends = {}
        for place, way in enumerate(("graft", "sequential")):
            own = [task[place] for task in tasks]
            mean = float(np.mean([one.mean for one in own]))
            reach = float(np.linalg.norm([one.high - one.low for one in own])) / 4
            ends[way] = Interval(mean, mean - reach, mean + reach, 0.95, 2)
        line = {"task": "one", "learned": 0.5, "before": 0.5, "end": 0.5}
        means = {way: {"end": one.mean, "forgotten": 0.0} for way, one in ends.items()}
        table = [{**line, "way": way} for way in ends]
        return Verdict(tuple(forgetting_verdict(table, means, ["one", "two"], ends, rows)))

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
    small, large, wrong = (SMALL, Likeness()), (LARGE, ALIKE), ("difference",)
    apart, absent = f"{MARGIN} apart, {LARGE:,} test rows", ("absence",)
    equal = f"equal models, {SMALL} test rows"
    return [
        World(equal, "finetune", (*wrong, "interval"), ("*",), finetune_run(0.0, *small)),
        World(equal, "graft", wrong, ("gain", "keeps", "masks"), graft_run(0.0, *small)),
        World(f"two tasks, {equal}", "graft", wrong, ("continual", "more-weights"),
              continual_run(0.0, *small)),
        World("equal trainings, 60 texts", "inject", wrong, ("*",), inject_run(0.0, 60, 0.1)),
        World(apart, "finetune", absent, ("*",), finetune_run(MARGIN, *large)),
        World(apart, "graft", absent, ("gain", "masks"), graft_run(MARGIN, *large)),
        World(f"two tasks, {apart}", "graft", absent, ("continual",),
              continual_run(MARGIN, *large)),
        World(f"{MARGIN} apart, 4,000 texts", "inject", absent, ("*",),
              inject_run(MARGIN, 4000, 0.1)),
    ]  # fmt: skip
