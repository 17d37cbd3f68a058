"""What is not significant is absent only if an interval inside the margin shows it."""

import math

import numpy as np
import pytest

from cutaway.core.errors import BadSpec
from cutaway.measure.conclusions import MARGIN, conclude, describe, margin_of, unpaired
from cutaway.measure.intervals import Difference, Interval, normal_quantile, paired_t, t_p_value

INF = float("inf")


def difference(mean: float, error: float, freedom: float = INF) -> Difference:
    reach = 1.959964 * error
    p = 2 * (1 - 0.5 * (1 + math.erf(abs(mean) / error / math.sqrt(2))))
    return Difference(Interval(mean, mean - reach, mean + reach, 0.95, 1), p, freedom)


@pytest.mark.parametrize(
    ("mean", "error", "kind"),
    [
        (0.1, 0.03, "shown"),
        (-0.1, 0.03, "shown"),
        (0.005, 0.002, "shown"),
        (0.001, 0.005, "absent"),
        (0.0, 0.1, "unknown"),
        (0.019, 0.01, "unknown"),
        # 1.645 standard errors, not 1.96, must fit into the margin.
        (0.0, 0.0121, "absent"),
        (0.0, 0.0122, "unknown"),
    ],
)
def test_a_difference_is_shown_or_absent_or_neither(mean, error, kind):
    found = conclude(difference(mean, error), margin=0.02, rows=100)
    assert found.kind == kind
    assert (found.margin, found.level) == (0.02, 0.05)
    assert (found.rows_needed is None) == (kind != "unknown")


def test_a_small_difference_can_be_shown_and_be_small():
    assert conclude(difference(0.005, 0.002), margin=0.02, rows=10).within_margin
    assert not conclude(difference(0.03, 0.01), margin=0.02, rows=10).within_margin


def test_the_equivalence_interval_has_the_degrees_of_freedom_of_the_difference():
    values = np.array([0.011, -0.009, 0.001])
    found = paired_t(values, np.zeros(3), n_train=10, n_test=0)
    assert found.freedom == 2
    # t of 90 % and 2 degrees of freedom is 2.920, the standard error 0.00577: it reaches 0.0179.
    assert conclude(found, margin=0.0180, rows=10).kind == "absent"
    assert conclude(found, margin=0.0178, rows=10).kind == "unknown"


def test_as_many_rows_as_needed_settle_it_eight_times_in_ten():
    rng, rows, margin, noise = np.random.default_rng(0), 50, 0.02, 0.3
    first = conclude(difference(0.0, noise / math.sqrt(rows)), margin=margin, rows=rows)
    needed = first.rows_needed
    assert needed is not None
    error = noise / math.sqrt(needed)
    for truth, kind in ((margin, "shown"), (0.0, "absent")):
        drawn = rng.normal(truth, error, 1000)
        kinds = [conclude(difference(m, error), margin=margin, rows=needed).kind for m in drawn]
        assert 0.78 <= np.mean([k == kind for k in kinds]) <= 0.88


def test_a_false_conclusion_is_as_rare_as_the_level():
    rng, error = np.random.default_rng(1), 0.005
    drawn = [difference(m, error) for m in rng.normal(0.0, error, 2000)]
    shown = np.mean([conclude(d, margin=0.02, rows=9).kind == "shown" for d in drawn])
    at_margin = [difference(m, error) for m in rng.normal(0.02, error, 2000)]
    absent = np.mean([conclude(d, margin=0.02, rows=9).kind == "absent" for d in at_margin])
    assert 0.035 <= shown <= 0.065
    assert absent <= 0.065


def test_without_an_interval_or_a_margin_nothing_is_concluded():
    lone = paired_t([0.75], [0.5], n_train=7, n_test=2)
    found = conclude(lone, margin=0.02, rows=10)
    assert (found.kind, found.rows_needed) == ("unknown", None)
    free = conclude(difference(0.0, 0.001), margin=math.nan, rows=10)
    assert (free.kind, free.rows_needed) == ("unknown", None)
    with pytest.raises(BadSpec, match="margin must be above 0"):
        conclude(lone, margin=0.0, rows=10)


def test_more_rows_are_needed_than_there_are():
    # 1.8 standard errors above 0 and a margin of 3.4: unlucky, though there were rows enough.
    found = conclude(difference(1.8, 1.0), margin=3.4, rows=100)
    assert (found.kind, found.rows_needed) == ("unknown", 101)


def test_margins_by_metric():
    assert margin_of("accuracy") == margin_of("precision@1") == margin_of("lm_loss") == MARGIN
    assert margin_of("mcc") == margin_of("mcc_train") == 2 * MARGIN
    assert margin_of("relative_gain") == 0.05
    assert math.isnan(margin_of("mse"))


def test_quantiles_of_infinite_freedom_are_normal():
    assert normal_quantile(0.95) == pytest.approx(1.959964)
    assert t_p_value(1e9, 1.959964) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (0.1, 0.03, "better, +0.100 [+0.041, +0.159] (paired t test, p < 0.001)"),
        (-0.1, 0.04, "worse, -0.100 [-0.178, -0.022] (paired t test, p = 0.012)"),
        (0.01, 0.004, "better by less than 0.02, +0.010 [+0.002, +0.018] (paired t test, "
         "p = 0.012)"),
        (0.0, 0.005, "no difference larger than 0.02, +0.000 [-0.010, +0.010] (paired t test, "
         "equivalence test)"),
        (0.1, 0.09, "38 test rows can't tell, +0.100 [-0.076, +0.276] (paired t test, p = 0.267); "
         "about 6,600 would show a difference of 0.02"),
    ],
)  # fmt: skip
def test_the_text_says_what_is_concluded_and_by_which_test(mean, error, text):
    found = conclude(difference(mean, error), margin=0.02, rows=38)
    assert describe(found, rows=38, test="paired t test") == text


def test_a_difference_that_cannot_be_tested_is_not_concluded():
    one = Difference(Interval(0.1, math.nan, math.nan, 0.95, 1), math.nan)
    found = conclude(one, margin=0.02, rows=40)
    assert describe(found, rows=40, test="t", unit="tokens") == "40 tokens can't tell, +0.100"


def test_an_unpaired_difference_is_as_unsure_as_both_together() -> None:
    first, second = Interval(0.7, 0.6, 0.8, 0.95, 50), Interval(0.5, 0.5, 0.5, 0.95, 50)
    found = unpaired(first, second)
    ends = found.interval.mean, found.interval.low, found.interval.high
    assert ends == pytest.approx((0.2, 0.1, 0.3))
    # 0.2 is 3.92 standard errors of 0.1 / 1.96.
    assert found.p == pytest.approx(8.9e-5, rel=0.01)
    both = unpaired(first, Interval(0.5, 0.4, 0.6, 0.95, 50))
    assert both.interval.high - both.interval.low == pytest.approx(0.2 * 2**0.5)


@pytest.mark.parametrize("end", [0.5, float("nan")])
def test_without_errors_nothing_is_shown(end: float) -> None:
    found = unpaired(Interval(0.5, end, end, 0.95, 1), Interval(0.5, 0.5, 0.5, 0.95, 1))
    assert math.isnan(found.p)
    assert conclude(found, margin=0.02, rows=10).kind == ("absent" if end == 0.5 else "unknown")
