"""Verdicts of nextword on simulated test rows.

Null: all cells have the same true accuracy, so no difference is true. Margin: the true difference
is exactly the margin below which two scores count as equal, so no absence is true.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from bench.nulls.answers import ALIKE, DESIGNS, LARGE, LEVEL, Likeness, Run, simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.conclusions import MARGIN
from cutaway.methods.nextword import verdict as nextword_verdict
from cutaway.methods.nextword.evidence import FeatureEvidence, FeatureScore

FEATURES = ("f", "phi_p", "classwords", "zeroshot")
TEXT_COLUMNS = dict.fromkeys(("prompt", "features", "metric", "status"), pl.String)
NO_ROWS = pl.DataFrame(
    schema={
        **TEXT_COLUMNS,
        "repeat": pl.Int64,
        **dict.fromkeys(("value", "low", "high"), pl.Float64),
    }
)


def nextword_run(
    accuracies: Mapping[tuple[str, str], float], baseline: float, *, rows: int, repeats: int,
    protocol: str, like: Likeness,
) -> Run:  # fmt: skip
    """Features with and without a prompt, of these accuracies; the baselines have another."""
    texts = ("majority", "bow", "tfidf")

    def run(seed: int) -> Verdict:
        found = simulate(
            np.random.default_rng(seed), [*accuracies.values(), *[baseline] * len(texts)],
            rows=rows, repeats=repeats, protocol=protocol, like=like,
        )  # fmt: skip
        scores = [
            FeatureScore(one.values, one.resampling, *name, one.validation)
            for name, one in zip([*accuracies, *(("", t) for t in texts)], found, strict=True)
        ]
        count = len(accuracies)
        based = {score.features: score for score in scores[count:]}
        evidence = FeatureEvidence("accuracy", tuple(scores[:count]), based)
        result = nextword_verdict._task_result(
            NO_ROWS, evidence, {"model": "", "task": ""}, {}, (), 0.0
        )
        return Verdict(tuple(result["verdict"]), LEVEL)

    return run


def features(
    with_prompt: float, without: float, state: float = 0.0
) -> dict[tuple[str, str], float]:
    """The accuracy of every feature; `state` is added to that of the hidden state."""
    return {
        (prompt, kind): accuracy + (state if kind == "f" else 0.0)
        for prompt, accuracy in ((" It was", with_prompt), ("", without))
        for kind in FEATURES
    }


def worlds() -> list[World]:
    """Every simulated world of nextword."""
    made = []
    for name, design in DESIGNS.items():
        run = nextword_run(features(LEVEL, LEVEL), LEVEL, **design, like=Likeness())
        wrong = ("difference", "interval")
        made.append(World(f"equal features, {name}", "nextword", wrong, ("*",), run))
    low = LEVEL - MARGIN
    apart = {
        "baselines": (("baseline*", "zero-shot*"), features(LEVEL, LEVEL), low),
        "hidden state": (("next-word-or-f*",), features(LEVEL, LEVEL, state=-MARGIN), low),
        "prompt": (("prompt*",), features(LEVEL, low), low),
    }
    for name, design in LARGE.items():
        for what, (kinds, accuracies, baseline) in apart.items():
            run = nextword_run(accuracies, baseline, **design, like=ALIKE)
            made.append(
                World(f"{what} {MARGIN} apart, {name}", "nextword", ("absence",), kinds, run)
            )
    return made
