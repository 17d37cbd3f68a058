"""Laws of the cut between no and yes."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Mismatch, UnknownName
from cutaway.measure.calibration import CRITERIA, Threshold, best_threshold
from cutaway.measure.metrics import METRICS

every_metric = pytest.mark.parametrize("metric", CRITERIA)
SCORES = st.one_of(
    st.integers(-3, 3).map(float), st.floats(allow_nan=False), st.sampled_from([-np.inf, np.inf])
)
PAIRS = st.lists(st.tuples(SCORES, st.integers(0, 1)), min_size=1, max_size=40)


@every_metric
@given(pairs=PAIRS)
@settings(max_examples=80, deadline=None)
def test_no_cut_is_better_than_the_one_found(metric, pairs):
    scores, labels = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    measure = METRICS[metric]
    every = [Threshold(-np.inf)] + [Threshold(s) for s in scores]
    best = max(measure(labels, cut(scores).astype(int)) for cut in every)
    found = best_threshold(scores, labels, metric=metric)(scores)
    assert measure(labels, found.astype(int)) == pytest.approx(best)


@every_metric
@given(labels=st.lists(st.integers(0, 1), min_size=1, max_size=20), score=st.floats(-5, 5))
@settings(max_examples=40, deadline=None)
def test_equal_scores_give_a_constant_decision_never_the_labels(metric, labels, score):
    scores = np.full(len(labels), score)
    decisions = best_threshold(scores, np.array(labels), metric=metric)(scores)
    assert len(set(decisions.tolist())) == 1
    if metric == "accuracy" and sum(labels) * 2 != len(labels):
        assert decisions[0] == (sum(labels) * 2 > len(labels))


@every_metric
def test_a_cut_between_separable_scores_lies_half_way(metric):
    found = best_threshold(np.array([0.1, 0.2, 0.6, 0.9]), np.array([0, 0, 1, 1]), metric=metric)
    assert found.value == pytest.approx(0.4)


def test_neighbouring_floats_are_told_apart():
    low = 1.0
    scores = np.array([low, np.nextafter(low, 2)])
    assert best_threshold(scores, np.array([0, 1]))(scores).tolist() == [False, True]


def test_the_search_has_no_way_to_see_test_labels():
    # It takes one set of rows; what it returns knows nothing but a number.
    assert list(inspect.signature(best_threshold).parameters) == ["scores", "labels", "metric"]
    assert list(vars(best_threshold([0.2, 0.8], np.array([0, 1])))) == ["value"]


def test_accuracy_and_f1_can_want_different_cuts():
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    labels = np.array([0, 0, 1, 0, 0, 0, 1])
    cuts = {m: best_threshold(scores, labels, metric=m) for m in CRITERIA}
    assert cuts["accuracy"].value > 0.6
    assert METRICS["f1"](labels, cuts["f1"](scores)) >= METRICS["f1"](
        labels, cuts["accuracy"](scores)
    )


def test_many_scores_are_cut_by_one_sort():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200_000)
    found = best_threshold(labels + rng.normal(size=200_000), labels)
    assert found.value == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("scores", "labels", "error", "words"),
    [
        ([], [], BadData, "at least one validation row"),
        ([0.1, np.nan], [0, 1], BadData, "1 of 2 validation scores are NaN"),
        ([0.1], [0, 1], Mismatch, r"got \(1,\) and \(2,\)"),
        ([[0.1, 0.9]], [[0, 1]], Mismatch, "needs .n,. scores"),
    ],
)
def test_what_cannot_be_cut_is_refused(scores, labels, error, words):
    with pytest.raises(error, match=words):
        best_threshold(np.array(scores), np.array(labels))


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="Known: accuracy, f1"):
        best_threshold([0.1], np.array([1]), metric="auc")
