"""Scores of answers: nothing is dropped, and groups add up to the total."""

import numpy as np
import pytest

from cutaway.measure.intervals import wilson
from cutaway.measure.metrics import log_rmse
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


def test_log_rmse_by_hand_on_four_numbers() -> None:
    truth, said = np.array([0.0, 1.0, 9.0, 99.0]), np.array([0.0, 3.0, 9.0, 9.0])
    by_hand = np.sqrt((np.log(4 / 2) ** 2 + np.log(100 / 10) ** 2) / 4)
    assert log_rmse(truth, said) == pytest.approx(by_hand)
    assert score_answers(truth, said).log_rmse.mean == pytest.approx(by_hand)


@pytest.mark.parametrize("answer", [0.0, 5.0, 40.0, 1e9, -3.0])
def test_an_undecodable_answer_is_never_better_than_any_other(answer) -> None:
    truth = np.array([5.0, 12.0, 40.0])
    said, silent = np.array([answer, 12.0, 40.0]), np.array([np.nan, 12.0, 40.0])
    lost, given = score_answers(truth, silent), score_answers(truth, said)
    assert lost.log_rmse.mean >= given.log_rmse.mean
    assert lost.exact_match.mean <= given.exact_match.mean
    assert lost.undecodable.mean == pytest.approx(1 / 3)


def test_exact_match_tells_neighbours_of_18_digits_apart() -> None:
    truth = np.array([999999998000000001, 7, -4])
    said = np.array([999999998000000000, 7, float("nan")], dtype=object)
    found = score_answers(truth, said)
    assert (found.exact_match.mean, found.undecodable.mean) == (
        pytest.approx(1 / 3), pytest.approx(1 / 3))  # fmt: skip
    groups = dict(exact_match_by_group(truth, said, {"digits": np.array([9, 1, 1])}))
    assert {name: i.mean for name, i in groups.items()} == {"digits 1": 0.5, "digits 9": 0.0}
    assert score_answers(truth, truth.astype(object)).exact_match.mean == 1.0


def test_groups_count_their_own_rows() -> None:
    truth, said = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 3.0, np.nan])
    found = dict(exact_match_by_group(truth, said, {"op": np.array(["+", "+", "-", "-"])}))
    assert {name: (i.mean, i.n) for name, i in found.items()} == {
        "op +": (0.5, 2),
        "op -": (0.5, 2),
    }
