"""Scores of answers: nothing is dropped, and groups add up to the total."""

import numpy as np
import pytest

from cutaway.measure.intervals import wilson
from cutaway.methods.inject.maths.score import exact_match_by_group, exact_matches, score_answers

TRUTH = np.array([3, -4, 12, 100, 7], dtype=object)


def test_right_answers_score_1_and_have_no_error() -> None:
    scores = score_answers(TRUTH, TRUTH).metrics()
    assert scores["exact_match"] == wilson(5, 5)
    assert scores["log_rmse"].mean == 0.0
    assert scores["undecodable"] == wilson(0, 5)


def test_an_undecodable_answer_counts_as_the_worst_possible_one() -> None:
    nan = float("nan")
    answers = np.array([3, -4, nan, 100, 7], dtype=object)
    scores = score_answers(TRUTH, answers)
    assert scores.exact_match == wilson(4, 5)
    assert scores.undecodable == wilson(1, 5)
    # Shifted by the lowest result, 12 becomes 16; the worst answers are 0 and 10 * 100 + 9 + 4.
    worst = max(np.log1p(16), np.log1p(1013) - np.log1p(16))
    assert scores.log_rmse.mean == pytest.approx(np.sqrt(worst**2 / 5))


def test_an_answer_that_is_further_off_has_a_larger_error() -> None:
    errors = [
        score_answers(TRUTH, np.array([3, -4, 12, 100 + step, 7], dtype=object)).log_rmse.mean
        for step in (0, 1, 10, 100)
    ]
    assert errors == sorted(errors) and errors[0] == 0.0 < errors[1]


def test_large_integers_are_compared_exactly() -> None:
    large = np.array([2**53 + 1], dtype=object)
    assert exact_matches(large, large).all()
    assert not exact_matches(large, np.array([2**53], dtype=object)).any()


def test_groups_of_a_column_add_up_to_all_answers() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 50, 60).astype(object)
    answers = np.where(rng.random(60) < 0.6, truth, -1)
    columns = {"digits": rng.integers(1, 4, 60), "op": rng.choice(["+", "-"], 60)}
    groups = dict(exact_match_by_group(truth, answers, columns))
    assert list(groups) == ["digits 1", "digits 2", "digits 3", "op +", "op -"]
    for column, values in columns.items():
        hits = sum(
            interval.mean * (values.astype(str) == name.split()[1]).sum()
            for name, interval in groups.items()
            if name.startswith(column)
        )
        assert hits == pytest.approx((truth == answers).sum())
