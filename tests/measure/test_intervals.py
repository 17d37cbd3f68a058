"""Intervals cover what they claim to, and differences that are none are not found."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.measure.intervals import (
    Interval,
    bootstrap,
    corrected_t,
    from_standard_error,
    over_seeds,
    paired_t,
    ratio,
    two_proportions,
    wilson,
)
from cutaway.measure.metrics import auc

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=20)


@given(values=VALUES, level=st.sampled_from([0.5, 0.9, 0.95]))
@settings(deadline=None)
def test_without_a_test_part_the_corrected_interval_is_the_plain_one(values, level):
    found = corrected_t(values, n_train=10, n_test=0, level=level)
    spread = np.std(values, ddof=1) / math.sqrt(len(values))
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=spread + 1e-300)
    assert [found.low, found.high] == pytest.approx([low, high], abs=1e-9)


def test_the_correction_is_nadeau_and_bengios():
    values = [0.7, 0.72, 0.69, 0.75, 0.71]
    found = corrected_t(values, n_train=70, n_test=20)
    reach = stats.t.ppf(0.975, 4) * math.sqrt(np.var(values, ddof=1) * (1 / 5 + 20 / 70))
    assert found.mean == pytest.approx(0.714)
    assert found.high - found.mean == pytest.approx(reach)
    assert found.mean - found.low == pytest.approx(reach)
    assert (found.level, found.n) == (0.95, 5)


def test_one_repeat_has_no_interval_and_none_has_no_mean():
    one, none = (corrected_t(v, n_train=7, n_test=2) for v in ([0.4], [math.nan]))
    assert (one.mean, one.n) == (0.4, 1)
    assert math.isnan(one.low)
    assert math.isnan(none.mean)
    assert none.n == 0


def test_repeats_without_a_value_are_left_out_and_counted():
    found = corrected_t([0.4, math.nan, 0.6], n_train=7, n_test=2)
    assert (found.mean, found.n) == (0.5, 2)


def overlapping_means(rng, repeats=10, rows=200):
    """Scores of repeated 80/20 splits of one sample: what a probe's repeats are."""
    sample = rng.normal(size=rows)
    return [rng.permutation(sample)[: rows // 5].mean() for _ in range(repeats)]


def test_the_corrected_interval_covers_the_truth_where_the_plain_one_does_not():
    rng = np.random.default_rng(0)
    runs = [overlapping_means(rng) for _ in range(300)]
    corrected = [corrected_t(run, n_train=160, n_test=40) for run in runs]
    plain = [corrected_t(run, n_train=160, n_test=0) for run in runs]
    covered = [np.mean([i.low <= 0 <= i.high for i in found]) for found in (corrected, plain)]
    assert covered[0] > 0.9
    assert covered[1] < 0.85


@given(n=st.integers(1, 200), data=st.data(), level=st.sampled_from([0.8, 0.95]))
@settings(deadline=None)
def test_wilson_agrees_with_scipy_and_stays_between_0_and_1(n, data, level):
    right = data.draw(st.integers(0, n))
    found = wilson(right, n, level=level)
    expected = stats.binomtest(right, n).proportion_ci(level, method="wilson")
    assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=1e-9)
    assert 0 <= found.low <= found.mean <= found.high <= 1


def test_the_bootstrap_agrees_with_scipy_and_is_near_the_normal_interval():
    values = np.random.default_rng(0).normal(2.0, 1.0, 400)
    found = bootstrap(lambda rows: float(values[rows].mean()), 400, seed=1, resamples=2000)
    expected = stats.bootstrap((values,), np.mean, n_resamples=2000, method="percentile", rng=2)
    interval = expected.confidence_interval
    assert [found.low, found.high] == pytest.approx([interval.low, interval.high], abs=0.02)
    reach = 1.96 * values.std() / 20
    assert [found.low, found.high] == pytest.approx(
        [found.mean - reach, found.mean + reach], abs=0.02
    )


def test_the_bootstrap_depends_on_its_seed_and_not_on_its_blocks(monkeypatch):
    values = np.random.default_rng(0).random(50)

    def interval(seed):
        return bootstrap(lambda rows: float(values[rows].mean()), 50, seed=seed)

    first = interval(3)
    assert interval(3) == first
    assert interval(4) != first
    monkeypatch.setattr("cutaway.measure.intervals.RESAMPLE_BLOCK", 170)
    assert interval(3) == first


def test_resamples_without_a_value_are_left_out():
    labels, scores = np.array([0, 0, 0, 1]), np.array([0.1, 0.4, 0.2, 0.3])
    found = bootstrap(lambda rows: auc(labels[rows], scores[rows]), 4, seed=0, resamples=200)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert math.isnan(bootstrap(lambda rows: math.nan, 4, seed=0, resamples=5).low)


@given(first=VALUES, seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_paired_test_is_the_t_test_on_differences_when_uncorrected(first, seed):
    a = np.array(first)
    b = a + np.random.default_rng(seed).normal(0, 0.1, len(a))
    found = paired_t(a, b, n_train=10, n_test=0)
    assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6, abs=1e-12)
    assert found.interval.mean == pytest.approx(np.mean(a - b))
    mirrored = paired_t(b, a, n_train=10, n_test=0)
    assert mirrored.p == pytest.approx(found.p)
    assert mirrored.interval.low == pytest.approx(-found.interval.high)


def test_the_p_value_and_the_interval_say_the_same():
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.02, 0.05, 0.2):
        a, b = rng.normal(0.7 + shift, 0.03, 10), rng.normal(0.7, 0.03, 10)
        found = paired_t(a, b, n_train=70, n_test=20)
        outside = found.interval.low > 0 or found.interval.high < 0
        assert outside == (found.p < 0.05)


def test_cells_that_differ_by_the_same_everywhere_are_not_told_apart_for_certain():
    values = np.array([0.25, 0.375, 0.5])
    found = paired_t(values + 0.5, values, n_train=7, n_test=2)
    assert math.isnan(found.p)
    assert math.isnan(found.interval.low)
    assert paired_t(values, values, n_train=7, n_test=2).p == 1.0


def test_equal_scores_of_splits_have_no_interval_and_equal_rows_have_one():
    assert math.isnan(corrected_t([0.85] * 5, n_train=7, n_test=2).low)
    assert corrected_t([3.0] * 5, n_train=1, n_test=0).low == 3.0


def test_one_pair_has_a_difference_but_no_p_value():
    found = paired_t([0.75], [0.5], n_train=7, n_test=2)
    assert found.interval.mean == 0.25
    assert math.isnan(found.p)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: paired_t([1, 2], [1], n_train=1, n_test=1), Mismatch, "2 and 1"),
        (lambda: corrected_t([1, 2], n_train=0, n_test=1), BadSpec, "n_train must be above 0"),
        (lambda: corrected_t([1], n_train=1, n_test=1, level=95), BadSpec, "level .*got 95"),
        (lambda: wilson(3, 2), BadData, "3 of 2"),
        (lambda: wilson(0, 0), BadData, "0 of 0"),
        (lambda: bootstrap(lambda rows: 0.0, 0, seed=0), BadData, "needs rows"),
    ],
)
def test_numbers_that_cannot_be_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_two_shares_of_the_same_rows_are_told_apart_as_by_hand():
    # 0.9 against 0.8 of 100: pooled 0.85, error sqrt(2 * 0.85 * 0.15 / 100), z = 1.980.
    gap = two_proportions(0.9, 0.8, 100)
    assert gap.p == pytest.approx(0.04767, abs=1e-5)
    assert gap.interval.mean == pytest.approx(0.1)
    assert gap.interval.low < 0.01 < gap.interval.high


def test_equal_shares_can_never_be_told_apart():
    assert two_proportions(0.5, 0.5, 1000).p == 1.0
    assert two_proportions(1.0, 1.0, 10).p == 1.0


@pytest.mark.parametrize(("first", "n"), [(1.2, 10), (-0.1, 10), (0.5, 0)])
def test_a_share_that_is_none_is_refused(first, n):
    with pytest.raises(BadData, match="Shares must be"):
        two_proportions(first, 0.5, n)


def parts(*values: tuple[float, float, float]) -> list[Interval]:
    return [Interval(mean, low, high, 0.95, 1) for mean, low, high in values]


def test_one_seed_keeps_the_interval_of_its_rows() -> None:
    found = over_seeds([parts((0.3, 0.222, 0.434))])
    assert (found.mean, found.low, found.high) == (0.3, 0.222, 0.434)
    assert math.isnan(over_seeds([parts((0.3, math.nan, math.nan))]).low)


def test_the_mean_of_sets_is_surer_than_each_of_them() -> None:
    found = over_seeds([parts((1.0, 0.7, 1.3), (3.0, 2.6, 3.4))])
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 1.75, 2.25))


def test_seeds_without_intervals_have_the_t_interval_over_their_means() -> None:
    nan = math.nan
    seeds = [parts((m - 0.1, nan, nan), (m + 0.1, nan, nan)) for m in (0.2, 0.5, 0.6)]
    low, high = stats.t.interval(0.95, 2, np.mean([0.2, 0.5, 0.6]), stats.sem([0.2, 0.5, 0.6]))
    found = over_seeds(seeds)
    assert (found.low, found.high, found.n) == pytest.approx((low, high, 3))


def test_equal_seeds_have_the_interval_of_their_rows() -> None:
    one = (0.8, 0.7, 0.88)
    found = over_seeds([parts(one)] * 3)
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((0.8, 0.7, 0.88, 3))
    apart = over_seeds([parts((m, m - 0.1, m + 0.08)) for m in (0.75, 0.8, 0.85)])
    assert apart.low < 0.7
    assert apart.high > 0.88


def test_a_scale_for_each_range() -> None:
    def at(mean: float, error: float, bounds: tuple[float | None, float | None], rows: float = 0):
        found = from_standard_error(mean, error, n=1, bounds=bounds, rows=rows)
        return found.low, found.high

    assert at(2.0, 0.5, (None, None)) == pytest.approx((2 - 0.98, 2 + 0.98), abs=1e-3)
    rows = wilson(80, 100)
    assert at(0.8, 0.04, (0.0, 1.0), 50) == pytest.approx((rows.low, rows.high))
    assert at(1.0, 0.0, (0.0, 1.0), 50) == pytest.approx((wilson(50, 50).low, 1.0))
    low, high = at(0.9, 0.05, (-1.0, 1.0))
    assert np.arctanh(high) - np.arctanh(0.9) == pytest.approx(np.arctanh(0.9) - np.arctanh(low))
    low, high = at(0.9, 0.2, (None, 1.0))
    assert (1 - low) / 0.1 == pytest.approx(0.1 / (1 - high))
    low, high = at(0.1, 0.2, (0.0, None))
    assert low / 0.1 == pytest.approx(0.1 / high)
    assert at(0.05, 0.1, (0.0, 1.0)) == pytest.approx((0.0, 0.246), abs=1e-3)
    assert math.isnan(at(0.5, 0.0, (None, None))[0])


def test_a_ratio_has_fiellers_interval() -> None:
    rng = np.random.default_rng(0)
    below = rng.normal(1.0, 0.02, 20)
    above = rng.normal(0.5, 0.1, 20)
    found = ratio(above, below)
    plain = corrected_t(above, n_train=1, n_test=0)
    assert found.mean == pytest.approx(above.mean() / below.mean())
    assert [found.low, found.high] == pytest.approx([plain.low, plain.high], abs=0.01)
    assert math.isnan(ratio(above, rng.normal(0.0, 1.0, 20)).low)
    assert math.isnan(ratio([1.0], [2.0]).low)
    assert math.isnan(ratio([1.0, 2.0], [-1.0, 1.0]).mean)
