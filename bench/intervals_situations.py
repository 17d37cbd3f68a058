"""Simulated situations in which an interval must cover the truth, and the rivals in each.

Every situation draws a data set, measures it as Cutaway does, and gives the interval of Cutaway and
those of other methods. The truth is known: from 400,000 rows, from the formula of the classifier's
accuracy, or because it was put in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bench import intervals_rivals as rivals
from bench.nulls.answers import accuracy_blocks
from cutaway.measure.calibration import ece
from cutaway.measure.intervals import Interval, corrected_t, over_seeds, wilson
from cutaway.measure.jackknife import N_BLOCKS, assign_blocks, row_scores
from cutaway.measure.metrics import METRICS
from cutaway.measure.repeats import (
    RepeatMetrics,
    RowScores,
    metric_interval,
    paired_difference,
    resampling_info,
)
from cutaway.measure.shared_rows import BlockScores, seeds_interval
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.methods.graft.maths.gain import kept_gain

Rng = np.random.Generator
Array = NDArray[Any]
Ends = tuple[float, float]
LARGE = 400_000


@dataclass(frozen=True)
class Drawn:
    """The intervals of one simulated data set, and the truth that they should cover."""

    ours: Ends
    rivals: Callable[[], dict[str, Ends]]
    """Those of other methods; a function, because bootstraps take long."""
    truth: float


Simulate = Callable[[Rng], Drawn | None]
"""None for data without a value, such as AUC of one class."""


def ends(interval: Interval) -> Ends:
    """Low and high."""
    return interval.low, interval.high


def one_test_set(
    metric: str, rows: int, *, apart: float, positive: float = 0.5, swapped: float = 0.0
) -> Simulate:
    """A binary metric of normally distributed scores on one test set.

    `apart` is the distance between the classes in standard deviations; a share `swapped` of the
    rows scores like the other class.
    """
    function = METRICS[metric].function
    needs_score = METRICS[metric].needs == "score"
    threshold = 0.0 if positive == 0.5 else special.logit(1 - positive) / max(apart, 2.0)

    def draw(rng: Rng, labels: Array, distance: float) -> Array:
        side = np.where(rng.random(len(labels)) < swapped, 1 - labels, labels) - 0.5
        scores = rng.normal(size=len(labels)) + distance * side
        return scores if needs_score else (scores > threshold).astype(np.int64)

    many = (np.arange(LARGE) < positive * LARGE).astype(np.int64)
    # Several truths: the coverage of one proportion jumps with its discrete values.
    near = [apart * factor for factor in np.linspace(0.95, 1.05, 5)]
    truths = [function(many, draw(np.random.default_rng(0), many, a)) for a in near]

    def simulate(rng: Rng) -> Drawn | None:
        labels = (rng.random(rows) < positive).astype(np.int64)
        if min(labels.sum(), rows - labels.sum()) < 3:
            return None
        place = int(rng.integers(len(near)))
        given = draw(rng, labels, near[place])
        found = _measured(metric, labels, lambda r: function(labels[r], given[r]))
        return Drawn(
            found, lambda: rivals.of_metric(metric, labels, given, function, rng), truths[place]
        )

    return simulate


def calibration(rows: int, *, sharper: float) -> Simulate:
    """The calibration error of probabilities whose log-odds are too large by a factor."""

    def draw(rng: Rng, n: int) -> tuple[Array, Array]:
        odds = 1.5 * rng.normal(size=n)
        return special.expit(sharper * odds), (rng.random(n) < special.expit(odds)).astype(int)

    truth = ece(*draw(np.random.default_rng(0), LARGE))

    def simulate(rng: Rng) -> Drawn:
        p, labels = draw(rng, rows)
        found = _measured("ece", labels, lambda r: ece(p[r], labels[r]), p)
        return Drawn(
            found, lambda: rivals.resampling(lambda r: ece(p[r], labels[r]), rows, rng), truth
        )

    return simulate


def regression(metric: str, rows: int, *, noise: float) -> Simulate:
    """A metric of predictions that differ from normally distributed labels by noise."""
    function = METRICS[metric].function
    rng = np.random.default_rng(0)
    many = rng.normal(size=LARGE)
    truth = function(many, many + noise * rng.normal(size=LARGE))

    def simulate(rng: Rng) -> Drawn:
        labels = rng.normal(size=rows)
        given = labels + noise * rng.normal(size=rows)

        def value(r: Array) -> float:
            return function(labels[r], given[r])

        found = _measured(metric, labels, value)
        return Drawn(found, lambda: rivals.resampling(value, rows, rng), truth)

    return simulate


def _measured(
    metric: str, labels: Array, value: Callable[[Array], float], p: Array | None = None
) -> Ends:
    n = len(labels)
    blocks = assign_blocks([np.arange(n)], n)
    scores = row_scores(metric, labels, value, blocks, N_BLOCKS, probabilities=p)
    measured = RepeatMetrics(0, n, 0, n, tested=n, rows={metric: scores})
    return ends(metric_interval([value(np.arange(n))], [measured], metric))


def protocol(
    plan: SplitPlan, rows: int, *, width: int, apart: float, test_part: float = 0.0
) -> Simulate:
    """The accuracy of a linear classifier under a protocol; truth: its mean over training sets.

    Two classes of normally distributed features of this width. `test_part` is the share of rows in
    the fixed test part.
    """
    parts = np.where(np.arange(rows) < (1 - test_part) * rows, "train", "test")
    labels = np.arange(rows) % 2
    truths: list[float] = []

    def fitted(rng: Rng) -> tuple[Sequence[Split], list[Array], float]:
        x = rng.normal(size=(rows, width))
        x[:, 0] += apart * (labels - 0.5)
        seeded = SplitPlan(**{**vars(plan), "seed": int(rng.integers(1 << 30))})
        splits = split(labels, seeded, task="binary", parts=parts if test_part else None)
        splits = [one for one in splits if one.size == splits[-1].size]
        fits = [_linear(x[one.train], labels[one.train]) for one in splits]
        right = [
            ((x[s.test] @ w + b > 0) == (labels[s.test] == 1)).astype(float)
            for (w, b), s in zip(fits, splits, strict=True)
        ]
        return splits, right, float(np.mean([_accuracy(w, b, apart) for w, b in fits]))

    def simulate(rng: Rng) -> Drawn:
        if not truths:
            # A fixed split has one training set: its own accuracy is the truth there.
            truths.append(float(np.mean([fitted(rng)[2] for _ in range(200)])))
        splits, right, own = fitted(rng)
        measured = _repeats(splits, right, rows)
        values = [float(r.mean()) for r in right]
        found = ends(metric_interval(values, measured, "accuracy"))
        truth = own if plan.protocol == "fixed" else truths[0]
        return Drawn(found, lambda: rivals.of_repeats(values, measured), truth)

    return simulate


def compared(plan: SplitPlan, rows: int, *, width: int, apart: float, better: float) -> Simulate:
    """The difference of two classifiers on the same splits, which see different features.

    The second sees its own copy of the feature that tells the classes apart, further apart by
    `better`. Truth: the mean difference over training sets.
    """
    labels = np.arange(rows) % 2
    truths: list[float] = []

    def fitted(rng: Rng) -> tuple[Sequence[Split], list[list[Array]], float]:
        shared = rng.normal(size=(rows, width))
        seeded = SplitPlan(**{**vars(plan), "seed": int(rng.integers(1 << 30))})
        splits = split(labels, seeded, task="binary")
        every, true = [], []
        for distance in (apart, apart + better):
            x = np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.normal(size=shared.shape)
            x[:, 0] += distance * (labels - 0.5)
            fits = [_linear(x[one.train], labels[one.train]) for one in splits]
            every.append([
                ((x[s.test] @ w + b > 0) == (labels[s.test] == 1)).astype(float)
                for (w, b), s in zip(fits, splits, strict=True)
            ])  # fmt: skip
            true.append(np.mean([_accuracy(w, b, distance) for w, b in fits]))
        return splits, every, float(true[1] - true[0])

    def simulate(rng: Rng) -> Drawn:
        if not truths:
            truths.append(float(np.mean([fitted(rng)[2] for _ in range(200)])))
        splits, (first, second), _ = fitted(rng)
        one, two = (_repeats(splits, right, rows) for right in (first, second))
        values = [[float(r.mean()) for r in right] for right in (second, first)]
        infos = [resampling_info(group, "accuracy") for group in (two, one)]
        found = paired_difference(*values, *infos, share=True)
        return Drawn(ends(found.interval), lambda: rivals.of_pairs(*values, infos[0]), truths[0])

    return simulate


def _repeats(splits: Sequence[Split], right: list[Array], n: int) -> list[RepeatMetrics]:
    blocks = assign_blocks([one.test for one in splits], n)
    made = []
    for one, answers in zip(splits, right, strict=True):
        values = accuracy_blocks(answers, blocks[one.test], N_BLOCKS)
        scores = RowScores(values, len(answers))
        made.append(RepeatMetrics.of(one, {}, {"accuracy": scores}))
    return made


def _linear(x: Array, labels: Array) -> tuple[Array, float]:
    """A regularised linear discriminant."""
    low, high = x[labels == 0].mean(axis=0), x[labels == 1].mean(axis=0)
    rest = x - np.where(labels[:, None] == 1, high, low)
    weight = min(1.0, x.shape[1] / len(x))
    spread = (1 - weight) * rest.T @ rest / max(len(x) - 2, 1) + weight * np.eye(x.shape[1])
    w = np.linalg.solve(spread, high - low)
    return w, float(-w @ (low + high) / 2)


def _accuracy(w: Array, b: float, apart: float) -> float:
    size, way = np.linalg.norm(w), w[0] * apart / 2
    return float(special.ndtr((way + b) / size) + special.ndtr((way - b) / size)) / 2


def relative_gain(rows: int, *, accuracies: tuple[float, float, float]) -> Simulate:
    """A graft's gain relative to the tuned model's: accuracies of base, graft and tuned model."""
    base, middle, tuned = accuracies
    truth = (middle - base) / (tuned - base)

    def simulate(rng: Rng) -> Drawn:
        # The models' answers are correlated: they find the same rows hard.
        hard = rng.normal(size=rows)
        right = [
            (np.sqrt(0.6) * hard + np.sqrt(0.4) * rng.normal(size=rows) < special.ndtri(a))
            for a in accuracies
        ]
        blocks = assign_blocks([np.arange(rows)], rows)
        each = [
            BlockScores(accuracy_blocks(r.astype(float), blocks, N_BLOCKS), (float(r.mean()),))
            for r in (right[1], right[0], right[2])
        ]

        def value(r: Array) -> float:
            below = right[2][r].mean() - right[0][r].mean()
            return float((right[1][r].mean() - right[0][r].mean()) / below) if below else np.nan

        return Drawn(ends(kept_gain(*each)), lambda: rivals.resampling(value, rows, rng), truth)

    return simulate


def forgetting(texts: int, *, skew: float) -> Simulate:
    """The mean rise of the loss over texts, a few of which rise much more than the others."""
    truth = float(np.exp(skew**2 / 2)) - 1.0

    def simulate(rng: Rng) -> Drawn:
        values = np.exp(skew * rng.normal(size=texts)) - 1.0
        found = corrected_t(values, n_train=1, n_test=0)
        return Drawn(
            ends(found),
            lambda: rivals.resampling(lambda r: float(values[r].mean()), texts, rng),
            truth,
        )

    return simulate


def lost_answers(rows: int, *, before: float, after: float) -> Simulate:
    """The fall of an accuracy on the same rows."""

    def simulate(rng: Rng) -> Drawn:
        hard = rng.normal(size=rows)
        right = [
            (np.sqrt(0.6) * hard + np.sqrt(0.4) * rng.normal(size=rows) < special.ndtri(a)).astype(
                float
            )
            for a in (before, after)
        ]
        whole = [Split(0, np.arange(1), np.arange(0), np.arange(rows), tested=rows)]
        infos = [resampling_info(_repeats(whole, [r], rows), "accuracy") for r in right]
        found = paired_difference([right[0].mean()], [right[1].mean()], *infos, share=True)

        def value(r: Array) -> float:
            return float(right[0][r].mean() - right[1][r].mean())

        return Drawn(
            ends(found.interval), lambda: rivals.resampling(value, rows, rng), before - after
        )

    return simulate


def seeds(count: int, rows: int, *, accuracy: float, spread: float) -> Simulate:
    """The mean accuracy of trainings with several seeds on the same test rows."""
    middle = special.ndtri(accuracy)
    many = np.random.default_rng(0).normal(size=LARGE)
    truth = float(special.ndtr(middle + spread * many).mean()) if spread else accuracy

    def simulate(rng: Rng) -> Drawn:
        hard = rng.normal(size=rows)
        right = [
            np.sqrt(0.6) * hard + np.sqrt(0.4) * rng.normal(size=rows)
            < middle + spread * rng.normal()
            for _ in range(count)
        ]
        blocks = assign_blocks([np.arange(rows)], rows)
        each = [
            BlockScores(
                accuracy_blocks(r.astype(float), blocks, N_BLOCKS), (float(r.mean()),), rows
            )
            for r in right
        ]
        apart = over_seeds([[wilson(float(r.sum()), rows)] for r in right])
        plain = corrected_t([one.mean for one in each], n_train=1, n_test=0)
        others = {"t over seeds": ends(plain), "intervals of the seeds": ends(apart)}
        return Drawn(ends(seeds_interval(each, "accuracy")), lambda: others, truth)

    return simulate
