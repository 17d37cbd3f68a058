"""Intervals of means over repeats use what the test rows and what the repeats tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.errors import Mismatch
from cutaway.measure.intervals import corrected_t, paired_t, two_proportions, wilson
from cutaway.measure.jackknife import N_BLOCKS, assign_blocks, pseudo_values
from cutaway.measure.metrics import UNIT, auc
from cutaway.measure.repeats import (
    RepeatMetrics,
    ResamplingInfo,
    RowScores,
    curve_overlap,
    mean_interval,
    metric_interval,
    paired_difference,
    resampling_info,
)
from cutaway.measure.splits import SplitPlan, split

# Repeats, test rows, training rows; how much fits differ as a whole, and row by row.
SHAPES = {"fixed": (10, 200, 5000, 0.05, 0.2), "kshot": (10, 2000, 32, 0.4, 0.8)}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def rights(rng, shape, cells=1, hard=-1.2):
    """Right answers (cells, repeats, rows): some rows are hard for all, some for one cell."""
    repeats, rows, _, whole, noise = shape
    common = rng.normal(-hard, 1.5, rows)
    return [
        common + rng.normal(0, 1, rows) + rng.normal(0, whole, (repeats, 1))
        + rng.normal(0, noise, (repeats, rows)) > 0
        for _ in range(cells)
    ]  # fmt: skip


def truth(shape, hard=-1.2):
    """The share of right answers over all rows and fits there could be."""
    _, _, _, whole, noise = shape
    spread = math.sqrt(1.5**2 + 1 + whole**2 + noise**2)
    return 0.5 * (1 + math.erf(-hard / spread / math.sqrt(2)))


def basis(right, shape):
    blocks = assign_blocks([np.arange(shape[1])], shape[1])
    each = [pseudo_values(lambda r, one=one: one[r].mean(), blocks, N_BLOCKS) for one in right]
    return ResamplingInfo(shape[2], shape[1], shape[1], tuple(each))


@shapes
@pytest.mark.parametrize("share", [True, False], ids=["Wilson's", "the jackknife's"])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(shape, share):
    rng, mean = np.random.default_rng(0), truth(shape)
    found = []
    for _ in range(250):
        (right,) = rights(rng, shape)
        found.append(mean_interval(right.mean(axis=1), basis(right, shape), share=share))
    assert 0.91 <= np.mean([i.low <= mean <= i.high for i in found]) <= 0.985


@shapes
def test_equal_cells_are_told_apart_no_more_often_than_5_times_in_100(shape):
    rng, told = np.random.default_rng(1), []
    for _ in range(250):
        one, two = rights(rng, shape, cells=2)
        means = one.mean(axis=1), two.mean(axis=1)
        found = paired_difference(*means, basis(one, shape), basis(two, shape), share=True)
        assert (found.p < 0.05) == (found.interval.low > 0 or found.interval.high < 0)
        told.append(found.p < 0.05)
    assert 0.005 <= np.mean(told) <= 0.085


def test_a_spread_that_holds_no_test_rows_is_no_longer_taken_for_all_there_is():
    values = 0.8 + 0.005 * np.linspace(-1.5, 1.5, 10)
    old = corrected_t(values, n_train=5000, n_test=200)
    new = mean_interval(values, ResamplingInfo(5000, 200, 200), share=True)
    one = wilson(160, 200)
    assert old.high - old.low < 0.01
    assert one.high - one.low < new.high - new.low < 1.02 * (one.high - one.low)


def test_few_shots_can_be_told_apart_on_many_rows():
    shape = (10, 9936, 32, 0.0, 0.0)
    rng = np.random.default_rng(0)
    (good,), (bad,) = rights(rng, shape), rights(rng, shape, hard=-0.2)
    values = good.mean(axis=1) + rng.normal(0, 0.05, 10), bad.mean(axis=1)
    assert paired_t(*values, n_train=32, n_test=9936).p > 0.5
    assert paired_difference(*values, basis(good, shape), basis(bad, shape), share=True).p < 0.001


def test_without_blocks_the_rows_of_independent_splits_are_estimated():
    values, own = [0.7, 0.72, 0.69], ResamplingInfo(70, 20)
    assert own.distinct_rows(3) == pytest.approx(60 / (1 - 2 / 9 + 6 / 9))
    assert own.distinct_rows(1) == 20
    found = mean_interval(values, own, share=True)
    rows = wilson(0.7033 * 41, 41)
    assert [found.low, found.high] == pytest.approx([rows.low, rows.high], abs=0.01)
    paired = paired_difference(values, [0.6, 0.65, 0.66], own, own, share=True)
    assert paired == paired_t(values, [0.6, 0.65, 0.66], n_train=70, n_test=20)
    flat = paired_difference([0.75] * 3, [0.5] * 3, own, own, share=True)
    assert flat == two_proportions(0.75, 0.5, 42)
    one, rows = mean_interval([0.75], own, share=True), wilson(15, 20)
    assert (one.low, one.high) == (rows.low, rows.high)
    assert paired_difference([0.75], [0.5], own, own, share=True) == two_proportions(0.75, 0.5, 20)


def test_equal_repeats_have_the_interval_of_their_rows():
    found = mean_interval([0.85] * 5, ResamplingInfo(140, 40, 200), share=True)
    rows = wilson(170, 200)
    assert [found.low, found.high] == pytest.approx([rows.low, rows.high])
    perfect = mean_interval([1.0] * 10, ResamplingInfo(203, 58, 207), share=True)
    assert (perfect.mean, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(wilson(207, 207).low)


def test_three_repeats_on_40_rows_know_what_120_answers_know():
    # The corrected t gives 0.775 [0.47, 1.08].
    found = mean_interval([0.70, 0.85, 0.775], ResamplingInfo(140, 40, 86), share=True)
    assert found.mean == pytest.approx(0.775)
    assert 0.16 < found.high - found.low < 0.24


def perfect_auc(rows):
    truth = np.arange(rows) % 2
    blocks = assign_blocks([np.arange(rows)], rows)
    values = pseudo_values(lambda r: auc(truth[r], truth[r]), blocks, N_BLOCKS)
    return ResamplingInfo(100, rows, rows, (values,), perfect_rows=rows, added_errors=0.3)


def test_a_perfect_score_is_worth_as_many_rows_as_it_has():
    found = mean_interval([1.0], perfect_auc(58), share=False, bounds=UNIT)
    assert (found.low, found.high) == pytest.approx((wilson(58, 58).low, 1.0))
    more = mean_interval([1.0], perfect_auc(580), share=False, bounds=UNIT)
    assert found.low < more.low < 1.0


def test_perfect_cells_differ_by_nothing_but_not_for_certain():
    one = perfect_auc(58)
    found = paired_difference([1.0], [1.0], one, one, share=False)
    assert found.p == 1.0
    assert 0.01 < found.interval.high < 0.1


def test_a_train_metric_is_judged_by_the_training_rows():
    group = [RepeatMetrics(k, 100, 0, 30, tested=90) for k in range(3)]
    info = resampling_info(group, "accuracy_train")
    assert (info.n_test, info.tested) == (100, 100)


def test_what_the_rows_of_the_first_repeat_tell_serves_for_all():
    rng, values = np.random.default_rng(0), [0.8, 0.81, 0.79]
    scores = RowScores(tuple(0.8 + 0.2 * rng.normal(size=20)), 40.0, 0.3)
    group = [
        RepeatMetrics(k, 140, 0, 40, tested=86, rows={"auc": scores} if k == 0 else {})
        for k in range(3)
    ]
    found = metric_interval(values, group, "auc")
    one = metric_interval(values[:1], group[:1], "auc")
    assert 0.05 < found.high - found.low < one.high - one.low


def test_what_two_cells_both_find_hard_is_no_difference():
    rng = np.random.default_rng(0)
    one = rng.random((1, 400)) < 0.7
    two = one.copy()
    two[0, rng.permutation(np.flatnonzero(one[0]))[:20]] = False
    shape = (1, 400, 100, 0, 0)
    paired = paired_difference(
        one.mean(1), two.mean(1), basis(one, shape), basis(two, shape), share=True
    )
    assert paired.p < 0.01
    assert two_proportions(one.mean(), two.mean(), 400).p > 0.05


def test_a_few_rows_never_tell_two_shares_apart_for_certain():
    blocks = tuple(ResamplingInfo(10, 3, 3, ((v, v, v),)) for v in (1.0, 0.0))
    assert paired_difference([1.0], [0.0], *blocks, share=True).p > 0.05
    same = paired_difference([1.0], [1.0], blocks[0], blocks[0], share=True)
    assert (same.p, same.interval.mean) == (1.0, 0.0)
    assert same.interval.high > 0.1


def test_without_blocks_or_a_value_nothing_is_said():
    labels = np.array([0, 0, 0, 1])
    lone = pseudo_values(lambda r: auc(labels[r], labels[r]), np.arange(4), 4)
    assert math.isnan(mean_interval([1.0], ResamplingInfo(9, 4, 4, (lone,)), share=False).low)
    flat = ResamplingInfo(9, 4, 4, ((1.0,) * 4,))
    assert math.isnan(mean_interval([1.0], flat, share=False).low)
    assert math.isnan(paired_difference([2.0], [1.0], flat, flat, share=False).p)
    assert math.isnan(mean_interval([], flat, share=True).mean)
    bare = ResamplingInfo(9, 4, 4)
    assert math.isnan(mean_interval([0.5, 0.5], bare, share=False).low)
    assert math.isnan(paired_difference([0.5], [0.4], bare, bare, share=False).p)
    with pytest.raises(Mismatch, match="20 and 10"):
        paired_difference(
            [1],
            [0],
            ResamplingInfo(9, 40, 40, ((1.0,) * 20,)),
            ResamplingInfo(9, 40, 40, ((1.0,) * 10,)),
            share=True,
        )


@pytest.mark.parametrize(
    ("protocol", "tested"), [("repeats", 84), ("kfold", 200), ("fixed", 40), ("kshot", 40)]
)
def test_splits_know_how_many_rows_their_repeats_test_together(protocol, tested):
    labels = np.arange(200) % 2
    parts = np.array(["train"] * 160 + ["test"] * 40)
    made = split(labels, SplitPlan(protocol, repeats=3, shots=4), task="binary", parts=parts)
    assert {one.tested for one in made} == {tested}


def test_shots_drawn_from_all_rows_are_tested_on_all_rows_together():
    made = split(np.arange(100) % 2, SplitPlan("kshot", repeats=9, shots=4), task="binary")
    times = np.bincount(np.concatenate([one.test for one in made]), minlength=100)
    assert {one.tested for one in made} == {round(times.sum() ** 2 / (times**2).sum())}
    assert 90 < made[0].tested <= 100


def test_a_thinned_train_part_remembers_what_it_was_drawn_from():
    made = split(np.arange(100) % 2, SplitPlan("curve", repeats=2, sizes=(10, 40)), task="binary")
    assert {(one.size, one.drawn) for one in made} == {(10, 70), (40, 70)}


def test_trainings_that_share_rows_widen_the_interval_of_a_curve():
    part = RepeatMetrics(0, 40, 20, 40, drawn=140)
    assert curve_overlap([part]) == pytest.approx(0.2 * (1 - 40 / 140))
    for whole in (RepeatMetrics(0, 140, 20, 40, drawn=140), RepeatMetrics(0, 40, 20, 40)):
        assert curve_overlap([whole]) == 0.0
    values = [0.6, 0.8, 0.7, 0.9]
    blocks = tuple(tuple(v + 0.05 * (-1) ** i for i in range(20)) for v in values)
    info = ResamplingInfo(140, 40, 130, blocks)
    apart, shared = (
        mean_interval(values, replace(info, overlap=o), share=True) for o in (0.0, 0.2)
    )
    assert shared.high - shared.low > 1.2 * (apart.high - apart.low)


def test_the_bias_of_a_calibration_error_moves_its_interval_and_widens_it():
    blocks = (tuple(0.1 + 0.02 * (-1) ** i for i in range(20)),)
    plain, biased = (
        mean_interval(
            [0.1], ResamplingInfo(100, 100, 100, blocks, bias=b), share=False, bounds=UNIT
        )
        for b in (0.0, 0.06)
    )
    assert biased.low < plain.low and biased.mean == plain.mean == 0.1
    # 0.04 is left of 0.1, with a standard error of 0.03 for the bias alone.
    assert biased.low == 0.0 and biased.high > 0.1
