"""Pseudo-values give a metric's usual error; a perfect score is worth its rows."""

import math

import numpy as np
import pytest
from scipy import special

from cutaway.measure.calibration import ece
from cutaway.measure.intervals import wilson
from cutaway.measure.jackknife import (
    N_BLOCKS,
    assign_blocks,
    calibration_bias,
    one_set_difference,
    one_set_interval,
    perfect_rows,
    pseudo_values,
    row_scores,
)
from cutaway.measure.repeats import RANK_ERRORS

BINARY = np.array([1] * 20 + [0] * 180)


def test_the_jackknife_of_a_mean_is_its_usual_error():
    values = np.random.default_rng(0).normal(size=4000)
    blocks = assign_blocks([np.arange(4000)], 4000)
    found = np.array(pseudo_values(lambda rows: values[rows].mean(), blocks, N_BLOCKS))
    assert found.mean() == pytest.approx(values.mean())
    assert found.std(ddof=1) / math.sqrt(N_BLOCKS) == pytest.approx(values.std() / 63.2, rel=0.4)


def test_blocks_are_equal_and_hold_only_rows_that_are_tested():
    blocks = assign_blocks([np.arange(10, 60), np.arange(50, 105)], 120)
    assert set(np.flatnonzero(blocks < 0)) == {*range(10), *range(105, 120)}
    counts = np.bincount(blocks[blocks >= 0])
    assert len(counts) == N_BLOCKS
    assert counts.max() - counts.min() <= 1
    assert assign_blocks([np.arange(3)], 3).max() == 2


def test_a_block_without_rows_in_a_repeat_takes_nothing_away():
    blocks = np.array([0, 0, 1, 1])
    found = pseudo_values(lambda rows: float(len(rows)), blocks, 3)
    assert found == (8.0, 8.0, 4.0)
    assert math.isnan(pseudo_values(lambda rows: 1.0, np.zeros(2, dtype=int), 1)[0])


@pytest.mark.parametrize(
    ("metric", "truth", "rows"),
    [
        ("accuracy", BINARY, 200),
        ("balanced_accuracy", BINARY, 72),
        ("balanced_accuracy", np.arange(200) % 2, 200),
        ("f1_macro", np.arange(300) % 3, 300),
        ("f1", BINARY, 40),
        ("ap", BINARY, 40),
        ("auc", BINARY, 72),
        ("f1_macro", np.eye(4, dtype=int)[np.arange(40) % 4], 20),
        ("r2", np.linspace(0, 1, 50), 0),
    ],
)
def test_errors_in_rare_classes_cost_more(metric, truth, rows):
    assert perfect_rows(metric, truth) == pytest.approx(rows)


def test_row_scores_know_their_metric():
    blocks = assign_blocks([np.arange(200)], 200)
    ranked = row_scores("auc", BINARY, lambda rows: 1.0, blocks, N_BLOCKS)
    assert (ranked.perfect_rows, ranked.added_errors) == (72, RANK_ERRORS)
    tuned = row_scores("f1_ref", BINARY, lambda rows: 1.0, blocks, N_BLOCKS)
    assert (tuned.perfect_rows, tuned.added_errors) == (40, 1.0)
    assert row_scores("ece", BINARY, lambda rows: 0.1, blocks, N_BLOCKS).bias == 0.0


def test_the_bias_is_what_the_calibration_error_of_calibrated_probabilities_is():
    rng, errors, biases = np.random.default_rng(0), [], []
    for _ in range(50):
        p = special.expit(1.5 * rng.normal(size=300))
        labels = (rng.random(300) < p).astype(int)
        errors.append(ece(p, labels))
        biases.append(calibration_bias(p, labels))
    assert 0.5 * np.mean(errors) < np.mean(biases) < np.mean(errors)
    wrong = np.full(1000, 0.9), np.arange(1000) % 2
    assert calibration_bias(*wrong) < 0.05 * ece(*wrong)


def test_one_test_set_has_the_interval_and_the_difference_of_its_rows():
    rng = np.random.default_rng(0)
    one, two = (rng.random(200) < share for share in (0.8, 0.5))
    found = one_set_interval("accuracy", one, lambda rows: float(one[rows].mean()))
    expected = wilson(one.sum(), 200)
    assert (found.low, found.high, found.n) == (expected.low, expected.high, 200)
    values = [lambda rows, right=right: float(right[rows].mean()) for right in (one, two)]
    assert one_set_difference("accuracy", one, *values).p < 0.001
    assert one_set_difference("accuracy", one, values[0], values[0]).p == 1.0
