"""Laws of the cut between no and yes."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Mismatch, UnknownName
from cutaway.measure.calibration import CRITERIA, Threshold, best_threshold, choose_threshold
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
    with pytest.raises(UnknownName, match="Known: accuracy, balanced_accuracy, f1"):
        best_threshold([0.1], np.array([1]), metric="auc")


def drawn(rng, n: int, share: float, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of two classes whose means are `gap` apart, around 0."""
    labels = (np.arange(n) < round(share * n)).astype(int)
    return rng.normal(size=n) + gap * (labels - 0.5), labels


def expected(metric: str, cut: float, fresh: tuple[np.ndarray, np.ndarray]) -> float:
    return METRICS[metric](fresh[1], (fresh[0] > cut).astype(int))


@pytest.mark.parametrize("rows", [60, 300])
def test_the_own_threshold_is_kept_where_it_is_right(rows):
    # A hundred validation sets: choosing the best threshold of each costs accuracy on new rows.
    rng = np.random.default_rng(0)
    fresh = drawn(rng, 20_000, 0.5, 0.8)
    found = {"kept": [], "best": []}
    for _ in range(100):
        scores, labels = drawn(rng, rows, 0.5, 0.8)
        found["kept"].append(choose_threshold(scores, labels, 0.0).value)
        found["best"].append(best_threshold(scores, labels).value)
    kept, best = (np.mean([expected("accuracy", c, fresh) for c in found[k]]) for k in found)
    own = expected("accuracy", 0.0, fresh)
    assert own - kept < 0.002 and own - best > 0.004
    assert np.mean(np.array(found["kept"]) == 0.0) >= 0.98


@pytest.mark.parametrize(
    ("metric", "rows", "share", "gap", "own"),
    [
        ("accuracy", 300, 0.5, 2.5, 1.0), ("balanced_accuracy", 300, 0.11, 1.0, 2.0),
        ("f1", 300, 0.11, 1.0, 2.0), ("balanced_accuracy", 100, 0.12, 0.8, 2.0),
    ],
)  # fmt: skip
def test_a_threshold_that_the_rows_show_to_be_wrong_is_replaced(metric, rows, share, gap, own):
    rng = np.random.default_rng(1)
    fresh = drawn(rng, 20_000, share, gap)
    chosen, best = [], []
    for _ in range(40):
        scores, labels = drawn(rng, rows, share, gap)
        chosen.append(expected(metric, choose_threshold(scores, labels, own, metric=metric).value,
                               fresh))  # fmt: skip
        best.append(expected(metric, best_threshold(scores, labels, metric=metric).value, fresh))
    before = expected(metric, own, fresh)
    assert np.mean(best) - before > 0.08
    assert np.mean(chosen) - before > 0.85 * (np.mean(best) - before)


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_say_nothing_about_a_threshold(label):
    scores = np.linspace(-1, 1, 50)
    assert choose_threshold(scores, np.full(50, label), 0.25).value == 0.25


@every_metric
def test_the_standard_error_of_a_gain_is_the_jackknifes(metric):
    from cutaway.measure.calibration import _gain

    scores, labels = drawn(np.random.default_rng(2), 80, 0.3, 1.0)
    first, second = scores > 0.7, scores > 0.1
    gain, error = _gain(CRITERIA[metric], labels == 1, first, second)
    measure = METRICS[metric]

    def of(rows):
        return measure(labels[rows], second[rows] * 1) - measure(labels[rows], first[rows] * 1)

    every = np.arange(80)
    without = np.array([of(np.delete(every, i)) for i in every])
    assert gain == pytest.approx(of(every))
    assert error == pytest.approx(np.sqrt(79 / 80 * ((without - without.mean()) ** 2).sum()))
