"""Verdicts on simulated test rows, thousands of which cost little.

Null: all cells have the same true accuracy, so no difference is true. Margin: the true difference
is exactly the margin below which two scores count as equal, so no absence is true.
"""

import numpy as np
import polars as pl

from bench.nulls.answers import simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.repeats import mean_interval
from cutaway.methods.shortcut.maths.exit_simulation import (
    LayerConfidences,
    agreement_at,
    calibrate,
    exit_layers,
)
from cutaway.methods.shortcut.verdict import exit_verdict
from cutaway.studies.findings import Finding, FindingSide
from cutaway.studies.report import study_text
from cutaway.studies.reproduce import StudyResult, judge_finding

TOKENS = 600


def shortcut_calibration(seed: int) -> Verdict:
    """Confidences that say little about correctness; the true agreement from many more tokens."""
    rng = np.random.default_rng(seed)
    found = calibrate(_confidences(rng, TOKENS), 0.9, risk=0.05)
    many = _confidences(rng, 50 * TOKENS)
    agreement = agreement_at(many, exit_layers(many, found.setting)).mean()
    sentences = exit_verdict(
        {"mat/max": found.saved}, [("mat", "max", found)], {}, layers=6, risk=0.05, positions=1
    )
    return Verdict(tuple(sentences), float(agreement))


def _confidences(rng: np.random.Generator, tokens: int) -> LayerConfidences:
    values = rng.random((6, tokens))
    correct = rng.random((6, tokens)) < 0.8 + 0.19 * values
    correct[-1] = True
    return LayerConfidences(values, correct, rng.integers(20, size=tokens), 20.0)


def study_equal(seed: int) -> Verdict:
    """Two models of the same accuracy on the same rows; a finding that one is better."""
    rng = np.random.default_rng(seed)
    cells = simulate(rng, [0.7, 0.7], rows=800, repeats=1, protocol="fixed")
    spans = [mean_interval(cell.values, cell.resampling, share=True) for cell in cells]
    table = pl.DataFrame(
        {
            "kind": ["more", "less"], "metric": ["accuracy"] * 2,
            **{name: [getattr(span, attribute) for span in spans]
               for name, attribute in {"value": "mean", "low": "low", "high": "high"}.items()},
        }
    )  # fmt: skip
    sides = [FindingSide(step="s", where={"kind": kind}) for kind in ("more", "less")]
    finding = Finding(says="more is better", more=sides[0], less=sides[1])
    judged = (judge_finding(finding, {"s": table}),)
    text = study_text(StudyResult("s", "t", "p", judged, {}, {}).plain()).splitlines()
    return Verdict((text[3], text[-1]))


def worlds() -> list[World]:
    """Every simulated world."""
    return [
        World(
            "confidences that say little", "shortcut", ("guarantee",), ("exit-calibrated",),
            shortcut_calibration,
        ),
        World(
            "equal models", "studies", ("difference",), ("finding-holds", "finding-fails"),
            study_equal,
        ),
    ]  # fmt: skip
