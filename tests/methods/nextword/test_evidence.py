"""The headline of nextword is chosen without test rows, and its comparisons are tests."""

import numpy as np
import pytest

from cutaway.methods.nextword.evidence import FeatureEvidence, feature_evidence
from cutaway.methods.nextword.rows import nextword_frame
from tests.methods.nextword.scores import answers, measured_cell, measured_cells


def evidence(*cells) -> FeatureEvidence:
    rows, resampling = measured_cells(*cells)
    return feature_evidence(nextword_frame(rows), "accuracy", resampling)


def test_the_headline_is_the_test_score_of_the_choice_on_validation_rows() -> None:
    found = evidence(
        measured_cell("f", answers(0.9), [0.7]), measured_cell("p", answers(0.6), [0.8])
    )
    chosen = found.choose(found.cells)
    assert chosen is not None
    facts, best = found.headline_facts(chosen), found.best_on_test_facts()
    assert (facts["features"], facts["chosen_on"]) == ("p", "validation")
    assert facts["value"] == pytest.approx(0.6) and facts["low"] < 0.6 < facts["high"]
    assert (best["features"], best["chosen_on"], best["cells"]) == ("f", "test", 2)
    assert best["value"] == pytest.approx(0.9)


def test_each_repeat_has_its_own_choice() -> None:
    f, p = answers(0.9, repeats=3), answers(0.6, repeats=3)
    found = evidence(measured_cell("f", f, [0.9, 0.1, 0.9]), measured_cell("p", p, [0.5] * 3))
    chosen = found.choose(found.cells)
    assert chosen is not None and chosen.agreeing == 2
    assert chosen.score.values == pytest.approx((0.9, 0.6, 0.9))
    assert chosen.score.features == "f"


def test_cells_without_validation_scores_are_not_chosen_and_baselines_are_apart() -> None:
    found = evidence(measured_cell("f", answers(0.9)), measured_cell("bow", answers(0.6)))
    assert found.choose(found.cells) is None
    assert [cell.features for cell in found.cells] == ["f"] and set(found.baselines) == {"bow"}


def test_a_difference_on_the_same_rows_is_tested_in_pairs() -> None:
    right = answers(0.7, n=200)
    more = right.copy()
    more[0, np.flatnonzero(right[0] == 0)[:16]] = 1
    found = evidence(measured_cell("f", more, [1.0]), measured_cell("bow", right))
    # Sixteen rows of 200, all in the same direction: unpaired, p would be 0.08.
    assert found.compare(found.cells[0], found.baselines["bow"]).kind == "shown"
    other = evidence(measured_cell("f", right, [1.0]), measured_cell("bow", right))
    assert other.compare(other.cells[0], other.baselines["bow"]).kind == "absent"
    few = evidence(
        measured_cell("f", answers(0.7, n=38), [1.0]),
        measured_cell("bow", answers(0.6, n=38, seed=1)),
    )
    conclusion = few.compare(few.cells[0], few.baselines["bow"])
    assert conclusion.kind == "unknown" and (conclusion.rows_needed or 0) > 38


def test_on_noise_the_headline_covers_chance_and_beats_no_baseline() -> None:
    rng = np.random.default_rng(0)
    covers = claims = best_above = 0
    for _ in range(200):
        cells = [
            measured_cell("f", rng.integers(0, 2, (1, 100)).astype(float), [rng.random()], str(i))
            for i in range(18)
        ]
        found = evidence(*cells, measured_cell("majority", rng.integers(0, 2, (1, 100)) * 1.0))
        chosen = found.choose(found.cells)
        assert chosen is not None
        span = found.interval(chosen.score)
        covers += span.low <= 0.5 <= span.high
        claims += found.compare(chosen.score, found.baselines["majority"]).kind == "shown"
        best = max(found.cells, key=lambda cell: cell.mean)
        best_above += found.interval(best).low > 0.5
    assert covers >= 0.93 * 200 and claims <= 0.075 * 200
    # The best of 18 on the test rows would claim more than half of the time.
    assert best_above > 0.3 * 200
