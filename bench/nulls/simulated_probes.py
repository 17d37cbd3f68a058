"""Verdicts of probe on simulated test rows.

Null: all cells have the same true accuracy, so no difference is true. Margin: the true difference
is exactly the margin below which two scores count as equal, so no absence is true.
"""

from itertools import product

import numpy as np

from bench.nulls.answers import ALIKE, DESIGNS, LARGE, LEVEL, Likeness, Run, simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.conclusions import MARGIN
from cutaway.methods.probe.evidence import Evidence, ProbeScore
from cutaway.methods.probe.verdict import verdict_sentences

LAYERS, POOLERS, CLASSIFIERS = tuple(map(str, range(8))), ("last", "mean"), ("lda", "ridge")


def probe_run(others: float, *, rows: int, repeats: int, protocol: str, like: Likeness) -> Run:
    """A grid of cells; baselines, twin and control have the accuracy `others`."""
    names = list(product(LAYERS, POOLERS, CLASSIFIERS))
    texts = ("majority", "bow", "tfidf")

    def run(seed: int) -> Verdict:
        accuracies = [LEVEL] * len(names) + [others] * (len(texts) + 2 * len(names))
        found = simulate(
            np.random.default_rng(seed), accuracies, rows=rows, repeats=repeats,
            protocol=protocol, like=like,
        )  # fmt: skip
        scores = [ProbeScore(one.values, one.resampling) for one in found[len(names) :]]
        grids = [
            tuple(
                ProbeScore(one.values, one.resampling, *name, validation=one.validation,
                           ties=one.validation)
                for name, one in zip(names, part, strict=True)
            )
            for part in (found[: len(names)], found[-2 * len(names) : -len(names)],
                         found[-len(names) :])
        ]  # fmt: skip
        evidence = Evidence(
            "accuracy", grids[0], dict(zip(texts, scores, strict=False)), twins=grids[1],
            controls=grids[2], repeats=tuple(range(len(found[0].values))),
        )  # fmt: skip
        return Verdict(tuple(verdict_sentences(evidence)), LEVEL)

    return run


def layers_run(*, rows: int, repeats: int, protocol: str, like: Likeness) -> Run:
    """One layer is better than the others by the margin."""

    def run(seed: int) -> Verdict:
        found = simulate(
            np.random.default_rng(seed), [LEVEL + MARGIN, *[LEVEL] * (len(LAYERS) - 1)],
            rows=rows, repeats=repeats, protocol=protocol, like=like,
        )  # fmt: skip
        # The better layer is also chosen on validation rows.
        cells = tuple(
            ProbeScore(one.values, one.resampling, layer, "last", "lda", validation=sure, ties=sure)
            for layer, one in zip(LAYERS, found, strict=True)
            for sure in [tuple(float(layer == LAYERS[0]) for _ in one.values)]
        )
        evidence = Evidence("accuracy", cells, repeats=tuple(range(len(found[0].values))))
        return Verdict(tuple(verdict_sentences(evidence)))

    return run


def worlds() -> list[World]:
    """Every simulated world of probe."""
    made = []
    for name, design in DESIGNS.items():
        run = probe_run(LEVEL, **design, like=Likeness())
        wrong = ("difference", "interval")
        made.append(World(f"equal cells, {name}", "probe", wrong, ("*",), run))
    for name, design in LARGE.items():
        runs = {
            "baselines": (
                ("majority*", "text*", "twin*", "control*"),
                probe_run(LEVEL - MARGIN, **design, like=ALIKE),
            ),
            "layers": (("layers*",), layers_run(**design, like=ALIKE)),
        }
        made += [
            World(f"{what} {MARGIN} apart, {name}", "probe", ("absence",), kinds, run)
            for what, (kinds, run) in runs.items()
        ]
    return made
