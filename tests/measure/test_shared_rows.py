"""Models on the same test rows are compared row by row, whatever their correlation."""

import math

import numpy as np
import pytest

from cutaway.measure.conclusions import unpaired
from cutaway.measure.intervals import wilson
from cutaway.measure.shared_rows import (
    BlockScores,
    block_values,
    mean_block_scores,
    mean_difference,
    seeds_interval,
    shared_rows_difference,
)

ROWS = 100


def scored(right: np.ndarray) -> BlockScores:
    """The accuracy of these right and wrong answers."""
    value = float(right.mean())
    return BlockScores(block_values(lambda r: float(right[r].mean()), len(right)), (value,), ROWS)


def claims(answers, test) -> float:
    """How often two models that know nothing are said to differ, over 400 sets of coin flips."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        labels = rng.integers(2, size=ROWS)
        found.append(test(*(given(rng) == labels for given in answers)) < 0.05)
    return float(np.mean(found))


def p_by_blocks(one: np.ndarray, two: np.ndarray) -> float:
    return shared_rows_difference(scored(one), scored(two)).p


def p_unpaired(one: np.ndarray, two: np.ndarray) -> float:
    return unpaired(*(wilson(float(right.sum()), ROWS) for right in (one, two))).p


def always(answer: int):
    return lambda rng: np.full(ROWS, answer)


def at_random(rng) -> np.ndarray:
    return rng.integers(2, size=ROWS)


@pytest.mark.parametrize("answers", [(always(0), always(1)), (at_random, at_random),
                                     (always(0), at_random)])  # fmt: skip
def test_models_that_know_nothing_are_rarely_said_to_differ(answers) -> None:
    assert claims(answers, p_by_blocks) < 0.08


def test_rows_taken_for_different_ones_would_call_two_constant_answers_different() -> None:
    assert claims((always(0), always(1)), p_unpaired) > 0.1


def test_a_difference_on_a_few_rows_of_models_that_agree_is_shown() -> None:
    one = np.arange(ROWS) % 2 == 0
    two = one.copy()
    two[1:24:2] = True
    found = shared_rows_difference(scored(two), scored(one))
    assert found.interval.mean == pytest.approx(0.12)
    assert found.p < 0.01 < p_unpaired(one, two)
    assert found.interval.low > 0


def test_equal_answers_differ_by_at_most_a_row_or_two() -> None:
    right = np.arange(ROWS) % 3 == 0
    found = shared_rows_difference(scored(right), scored(right))
    assert found.p == 1.0
    assert 0 < found.interval.high < 0.03


def test_without_worth_equal_scores_are_no_difference_and_unequal_ones_are_unknown() -> None:
    flat = BlockScores((0.5, 0.5), (0.5,))
    assert shared_rows_difference(flat, flat).p == 1.0
    other = shared_rows_difference(flat, BlockScores((0.4, 0.4), (0.4,)))
    assert math.isnan(other.p) and math.isnan(other.interval.low)


def test_trainings_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    base = scored(rng.random(ROWS) < 0.5)
    seeds = [scored(rng.random(ROWS) < share) for share in (0.5, 0.7, 0.9)]
    many = mean_block_scores(seeds)
    assert many.mean == pytest.approx(np.mean([one.mean for one in seeds]))
    alone = BlockScores(many.blocks, (many.mean,), many.worth)
    wide, narrow = (shared_rows_difference(one, base).interval for one in (many, alone))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


@pytest.mark.parametrize("blocks", [(), (0.5, math.nan), (0.5,)])
def test_without_blocks_nothing_is_known_about_a_difference(blocks) -> None:
    missing = BlockScores(blocks, (0.5,), ROWS)
    found = shared_rows_difference(missing, BlockScores((0.1, 0.2), (0.15,), ROWS))
    assert math.isnan(found.p) and found.interval.mean == pytest.approx(0.35)


def test_trainings_of_which_one_has_no_blocks_have_none() -> None:
    found = mean_block_scores([BlockScores((), (0.5,)), BlockScores((0.1, 0.3), (0.2,))])
    assert found.blocks == () and found.values == (0.5, 0.2)


def test_the_mean_of_differences_on_independent_rows_is_surer_than_each() -> None:
    rng = np.random.default_rng(2)
    each = [
        shared_rows_difference(*(scored(rng.random(ROWS) < share) for share in (0.8, 0.6)))
        for _ in range(4)
    ]
    found = mean_difference(each)
    assert found.interval.mean == pytest.approx(np.mean([one.interval.mean for one in each]))
    width = found.interval.high - found.interval.low
    assert width < min(one.interval.high - one.interval.low for one in each) * 0.7
    assert found.p < min(one.p for one in each)
    lost = [each[0], shared_rows_difference(BlockScores((), (0.5,)), BlockScores((), (0.4,)))]
    assert math.isnan(mean_difference(lost).p)


def test_seeds_that_answer_alike_know_no_more_than_one_and_others_know_more() -> None:
    rng = np.random.default_rng(3)
    one = rng.random(ROWS) < 0.7
    alone = wilson(float(one.sum()), ROWS)
    alike = seeds_interval([scored(one)] * 3, "accuracy")
    assert alike.high - alike.low == pytest.approx(alone.high - alone.low, rel=0.35)
    unlike = seeds_interval([scored(rng.permutation(one)) for _ in range(8)], "accuracy")
    assert unlike.high - unlike.low < 0.7 * (alone.high - alone.low)


def test_seeds_of_a_metric_that_is_no_proportion_have_an_interval_too() -> None:
    blocks = [tuple(0.5 + 0.1 * np.random.default_rng(s).normal(size=20)) for s in range(3)]
    found = seeds_interval([BlockScores(b, (float(np.mean(b)),)) for b in blocks], "pearson")
    assert -1 < found.low < found.mean < found.high < 1
