"""Choosing on validation scores, and what choosing on test scores adds by chance."""

import math

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.measure.conclusions import describe
from cutaway.measure.repeats import ResamplingInfo
from cutaway.measure.selection import (
    CellScore,
    Choice,
    MetricEvidence,
    chance_gain,
    choose,
    chosen_values,
    finite_or_none,
    holm,
    nested_resampling,
    rows_tested,
    rows_unit,
)

NAN = float("nan")


def test_each_repeat_chooses_by_its_own_validation_rows() -> None:
    choice = choose({"a": [0.9, 0.5, 0.9], "b": [0.8, 0.8, 0.1]})
    assert choice == Choice("a", ("a", "b", "a"))
    assert chosen_values(choice, {"a": [0.1, 0.2, 0.3], "b": [0.4, 0.5, 0.6]}) == (0.1, 0.5, 0.3)


def test_of_equal_scores_the_first_is_chosen_and_of_errors_the_lowest() -> None:
    assert choose({"a": [0.5], "b": [0.5]}).key == "a"
    assert choose({"a": [0.5], "b": [0.4]}, higher_is_better=False).key == "b"


def test_a_cell_without_a_score_is_not_chosen() -> None:
    assert choose({"a": [NAN, 0.9], "b": [0.1, 0.2]}) == Choice("b", ("b", "a"))
    assert choose({"a": [NAN, 0.9], "b": [0.1, NAN]}) == Choice("a", ("b", "a"))
    for nothing in ({}, {"a": [NAN]}, {"a": [0.5, NAN]}):
        with pytest.raises(BadData, match="nothing to choose"):
            choose(nothing)


def test_the_score_of_the_choice_is_unbiased_where_the_best_on_test_is_not() -> None:
    rng = np.random.default_rng(0)
    headlines, bests, gains = [], [], []
    for _ in range(300):
        validation, blocks = rng.normal(0.5, 0.05, 60), rng.normal(0.5, 0.05 * 20**0.5, (60, 20))
        test = blocks.mean(axis=1)
        choice = choose({k: [v] for k, v in enumerate(validation)})
        headlines += chosen_values(choice, {k: [v] for k, v in enumerate(test)})
        bests.append(test.max())
        gains.append(chance_gain(blocks, errors=blocks.std(axis=1, ddof=1) / 20**0.5))
    assert np.mean(headlines) == pytest.approx(0.5, abs=0.01)
    assert np.mean(bests) > 0.6
    assert np.mean(gains) == pytest.approx(np.mean(bests) - 0.5, rel=0.15)


def test_cells_that_agree_on_every_row_add_nothing_and_correlated_ones_less() -> None:
    rng = np.random.default_rng(1)
    one, own = rng.normal(size=(1, 20)), rng.normal(size=(50, 20))
    errors = np.full(50, 0.05)
    alike = chance_gain(np.repeat(one, 50, axis=0), errors=errors)
    related = chance_gain(one + 0.3 * own, errors=errors)
    apart = chance_gain(own, errors=errors)
    assert alike == pytest.approx(0.0, abs=0.002)
    assert alike < related < apart <= chance_gain(np.empty((50, 0)), errors=errors) * 1.05
    assert chance_gain(np.full((3, 4), 0.5), errors=[0.1] * 3) == 0.0


def test_equal_scores_are_decided_by_the_second_metric_then_by_order() -> None:
    scores = {"a": [0.9, 0.5], "b": [0.9, 0.5], "c": [0.8, 0.5]}
    assert choose(scores, ties={"a": [0.1, 0.3], "b": [0.2, 0.3], "c": [0.9, NAN]}) == Choice(
        "b", ("b", "a")
    )
    # Means that differ only in the last digit are equal.
    thirds = {"a": [0.1, 0.2, 0.3], "b": [0.3, 0.1, 0.2]}
    assert choose(thirds, ties={"a": [0.0] * 3, "b": [1.0] * 3}).key == "b"


def test_cells_that_are_clearly_worse_add_nothing_by_chance() -> None:
    rng = np.random.default_rng(0)
    bests, gains, known = [], [], []
    true = np.repeat([0.6, 0.9], [50, 10])
    for _ in range(200):
        blocks = true[:, None] + rng.normal(0.0, 0.03 * 20**0.5, (60, 20))
        errors, means = blocks.std(axis=1, ddof=1) / 20**0.5, blocks.mean(axis=1)
        bests.append(means.max() - 0.9)
        gains.append(chance_gain(blocks, errors=errors, means=means))
        known.append(chance_gain(blocks, errors=errors))
    assert np.mean(gains) == pytest.approx(np.mean(bests), rel=0.2)
    assert np.mean(known) > 1.4 * np.mean(bests)
    # Of cells that are equally good, the means make no difference.
    equal = rng.normal(0.5, 0.05, (60, 20))
    errors = equal.std(axis=1, ddof=1) / 20**0.5
    with_means = chance_gain(equal, errors=errors, means=equal.mean(axis=1))
    assert with_means == pytest.approx(chance_gain(equal, errors=errors), rel=0.3)


def test_each_repeat_brings_the_blocks_of_its_own_cell() -> None:
    one = ResamplingInfo(70, 20, 20, ((0.1, 0.2), (0.9, 0.8)))
    two = ResamplingInfo(70, 20, 20, ((0.3, 0.4), (0.5, 0.6)))
    found = nested_resampling([one, two])
    assert found.blocks == ((0.1, 0.2), (0.5, 0.6))
    assert found.block_means == pytest.approx((0.3, 0.4))
    assert nested_resampling([ResamplingInfo(70, 20)] * 2) == ResamplingInfo(70, 20)


def test_holm_rejects_step_by_step_and_holds_its_level_over_all() -> None:
    assert holm([0.04, 0.001, 0.02, NAN], 0.05) == [False, True, False, False]
    assert holm([0.01, 0.012, 0.03], 0.05) == [True, True, True]
    assert holm([], 0.05) == []
    rng = np.random.default_rng(0)
    false = np.mean([any(holm(rng.random(30).tolist(), 0.05)) for _ in range(1000)])
    assert false == pytest.approx(0.05, abs=0.02)


DRAWN = ResamplingInfo(160, 40)
ACCURACY, LOSS = MetricEvidence("accuracy"), MetricEvidence("mse")


def score(*values: float) -> CellScore:
    return CellScore(values, DRAWN)


def test_means_leave_out_repeats_without_a_value():
    assert score(0.5, math.nan, 0.7).mean == pytest.approx(0.6)
    assert score(0.5, math.nan).known and not score(math.nan).known


def test_the_better_cell_has_the_positive_difference_whatever_the_metric():
    low, high = score(0.2, 0.3, 0.25), score(0.6, 0.5, 0.55)
    assert ACCURACY.difference(high, low).interval.mean > 0
    assert LOSS.difference(low, high).interval.mean > 0
    assert ACCURACY.best_of((low, high)) is high and LOSS.best_of((low, high)) is low


def test_the_gain_of_choosing_uses_the_quantile_that_the_interval_was_made_with():
    rng = np.random.default_rng(0)
    cells = [score(*rng.normal(0, 0.1, size=3)) for _ in range(12)]
    # Three repeats: a t interval of 2 degrees of freedom, which reaches 4.30 standard errors.
    spans = [LOSS.interval(cell) for cell in cells]
    assert spans[0].freedom == 2
    errors = [(one.high - one.low) / 2 / 4.302653 for one in spans]
    assert [one.standard_error for one in spans] == pytest.approx(errors)
    expected = chance_gain(
        [[-v for v in cell.values] for cell in cells], errors=errors,
        means=[-cell.mean for cell in cells],
    )  # fmt: skip
    assert LOSS.gain_of_choosing(cells) == pytest.approx(expected)
    assert math.isnan(LOSS.gain_of_choosing([score(0.1), score(0.2)]))


def test_the_interval_of_the_best_cell_reaches_further_towards_chance_only():
    top = score(0.9, 0.95, 0.92)
    plain, wider = ACCURACY.interval(top), ACCURACY.interval_of_best(top, 0.05)
    assert wider.low == pytest.approx(plain.low - 0.05) and wider.high == plain.high
    loss, more = LOSS.interval(top), LOSS.interval_of_best(top, 0.05)
    assert more.high == pytest.approx(loss.high + 0.05) and more.low == loss.low


def test_a_sentence_counts_the_real_test_rows_of_a_repeat():
    one, two = score(0.60, 0.80, 0.70), score(0.68, 0.66, 0.72)
    found = ACCURACY.conclusion(one, two, 0.05)
    assert found.kind == "unknown" and rows_tested(one) == 40
    text = describe(found, rows=rows_tested(one), test="t", unit=rows_unit(3, "repeats"))
    assert text.startswith("40 test rows in each of 3 repeats can't tell")
    assert rows_unit(1, "repeats") == "test rows"


def test_json_has_no_nan():
    assert finite_or_none(0.5) == 0.5
    assert finite_or_none(math.nan) is finite_or_none(math.inf) is None
