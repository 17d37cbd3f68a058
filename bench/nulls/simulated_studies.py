"""Findings of studies on simulated test rows: that one of two equal models is better."""

import numpy as np
import polars as pl

from bench.nulls.answers import simulate
from bench.nulls.tally import Verdict, World
from cutaway.measure.repeats import mean_interval
from cutaway.studies.findings import Finding, FindingSide
from cutaway.studies.report import study_text
from cutaway.studies.reproduce import StudyResult, judge_finding


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
            "equal models", "studies", ("difference",), ("finding-holds", "finding-fails"),
            study_equal,
        ),
    ]  # fmt: skip
