"""Metrics agree with scikit-learn and SciPy, and are defined where those are not."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from cutaway.core.errors import BadData, Mismatch, UnknownName
from cutaway.core.textset import Task
from cutaway.measure.metrics import METRICS, Metric, evaluate, log_rmse, metrics_for_task

ROWS = st.integers(1, 60)
SEEDS = st.integers(0, 10_000)


def drawn(n, seed, classes=2):
    """Labels, decisions and scores with many ties, (n,) for two classes, (n, cls) for more."""
    rng = np.random.default_rng(seed)
    shape = n if classes == 2 else (n, classes)
    scores = rng.integers(0, 7, shape) / 6.0
    return rng.integers(0, classes, n), rng.integers(0, classes, n), scores


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


DECISIONS = {
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "f1_macro": lambda y, d: sk.f1_score(y, d, average="macro", zero_division=0),
    "f1_micro": lambda y, d: sk.f1_score(y, d, average="micro", zero_division=0),
    "mcc": sk.matthews_corrcoef,
}


@pytest.mark.parametrize("name", DECISIONS)
@given(n=ROWS, seed=SEEDS, classes=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_a_decision_metric_agrees_with_scikit_learn(name, n, seed, classes):
    labels, decisions, _ = drawn(n, seed, classes)
    expected = quietly(DECISIONS[name], labels, decisions)
    assert METRICS[name](labels, decisions) == pytest.approx(expected, abs=1e-12)


@given(n=ROWS, seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_binary_f1_agrees_with_scikit_learn(n, seed):
    labels, decisions, _ = drawn(n, seed)
    expected = sk.f1_score(labels, decisions, zero_division=0)
    assert METRICS["f1"](labels, decisions) == pytest.approx(expected)
    assert METRICS["f1"](labels == 1, decisions == 1) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "f1_micro"])
@given(n=ROWS, seed=SEEDS, classes=st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_a_multilabel_metric_agrees_with_scikit_learn(name, n, seed, classes):
    rng = np.random.default_rng(seed)
    labels, decisions = rng.integers(0, 2, (2, n, classes))
    expected = quietly(DECISIONS[name], labels, decisions)
    assert METRICS[name](labels, decisions) == pytest.approx(expected)


@given(n=ROWS, seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_auc_and_average_precision_agree_with_scikit_learn(n, seed):
    labels, _, scores = drawn(n, seed)
    if 0 < labels.sum() < n:
        assert METRICS["auc"](labels, scores) == pytest.approx(sk.roc_auc_score(labels, scores))
    if labels.any():
        expected = sk.average_precision_score(labels, scores)
        assert METRICS["ap"](labels, scores) == pytest.approx(expected)


@given(seed=SEEDS, classes=st.integers(3, 5))
@settings(max_examples=30, deadline=None)
def test_auc_and_average_precision_of_several_classes_are_means_over_them(seed, classes):
    labels, _, scores = drawn(40, seed, classes)
    marks = labels[:, None] == np.arange(classes)
    usable = [k for k in range(classes) if 0 < marks[:, k].sum() < 40]
    auc = np.mean([sk.roc_auc_score(marks[:, k], scores[:, k]) for k in usable])
    ap = np.mean([sk.average_precision_score(marks[:, k], scores[:, k]) for k in usable])
    assert METRICS["auc"](labels, scores) == pytest.approx(auc)
    assert METRICS["ap"](labels, scores) == pytest.approx(ap)
    assert METRICS["auc"](marks.astype(int), scores) == pytest.approx(auc)


@given(n=st.integers(3, 60), seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_regression_metric_agrees_with_scikit_learn_and_scipy(n, seed):
    rng = np.random.default_rng(seed)
    labels, values = rng.integers(0, 5, n) + 0.0, rng.integers(0, 5, n) + 0.0
    assert METRICS["mse"](labels, values) == pytest.approx(sk.mean_squared_error(labels, values))
    if len(set(labels)) > 1:
        assert METRICS["r2"](labels, values) == pytest.approx(sk.r2_score(labels, values))
    if len(set(labels)) > 1 and len(set(values)) > 1:
        rank, line = stats.spearmanr(labels, values)[0], stats.pearsonr(labels, values)[0]
        assert METRICS["spearman"](labels, values) == pytest.approx(rank)
        assert METRICS["pearson"](labels, values) == pytest.approx(line)


SAME, MIXED = np.ones(6, dtype=int), np.array([0, 1, 0, 1, 1, 0])
HALVES = np.full(6, 0.5)


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "value"),
    [
        ("auc", SAME, np.arange(6.0), math.nan),
        ("auc", 0 * SAME, np.arange(6.0), math.nan),
        ("auc", MIXED, HALVES, 0.5),
        ("auc", SAME, np.random.default_rng(0).random((6, 3)), math.nan),
        ("ap", 0 * SAME, np.arange(6.0), math.nan),
        ("ap", MIXED, HALVES, 0.5),
        ("mcc", MIXED, SAME, 0.0),
        ("mcc", SAME, SAME, 0.0),
        ("f1", 0 * SAME, 0 * SAME, 0.0),
        ("f1_macro", SAME, SAME, 1.0),
        ("r2", HALVES, HALVES, math.nan),
        ("r2", np.arange(6.0), np.full(6, 2.5), 0.0),
        ("spearman", np.arange(6.0), HALVES, math.nan),
        ("pearson", HALVES, np.arange(6.0), math.nan),
        ("pearson", np.array([1.0]), np.array([2.0]), math.nan),
        ("ece", MIXED, np.linspace(-1, 2, 6), math.nan),
    ],
)
def test_a_degenerate_case_has_the_documented_value(name, labels, predictions, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = METRICS[name](labels, predictions)
    assert found == pytest.approx(value, nan_ok=True)


PERFECT = {
    "decision": lambda y: y,
    "value": lambda y: y,
    "score": lambda y: y.astype(float),
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda m: m.name)
def test_the_truth_itself_gets_the_best_value(metric):
    labels = np.array(["a", "b"]) if metric.name == "exact_match" else np.array([0, 1, 1, 0, 1])
    best = 1.0 if metric.higher_is_better else 0.0
    assert metric(labels, PERFECT[metric.needs](labels)) == pytest.approx(best)


def test_log_rmse_by_hand_on_four_numbers():
    truth, answers = np.array([0.0, 1.0, 3.0, 9.0]), np.array([0.0, 3.0, 1.0, 9.0])
    assert log_rmse(truth, answers) == pytest.approx(math.sqrt(2 * math.log(2) ** 2 / 4))


NUMBERS = st.one_of(st.floats(-10, 1e7), st.just(math.inf))


@given(
    truth=st.lists(st.integers(0, 20_000), min_size=1, max_size=8),
    data=st.data(),
    worst=st.sampled_from([None, 20_000.0, 1e6]),
)
@settings(max_examples=80, deadline=None)
def test_an_undecodable_answer_is_worse_than_any_answer(truth, data, worst):
    exact = np.array(truth, dtype=float)
    size = len(truth)
    answers = np.array(data.draw(st.lists(NUMBERS, min_size=size, max_size=size)))
    silent = answers.copy()
    silent[data.draw(st.integers(0, size - 1))] = math.nan
    assert log_rmse(exact, silent, worst=worst) >= log_rmse(exact, answers, worst=worst) - 1e-12
    assert METRICS["log_rmse"](exact, silent) > 0


@pytest.mark.parametrize(("truth", "worst"), [([-1.0, 2.0], None), ([5.0], 4.0)])
def test_log_rmse_refuses_what_has_no_logarithm_or_no_worst_case(truth, worst):
    with pytest.raises(BadData, match="at least"):
        log_rmse(np.array(truth), np.array(truth), worst=worst)


def test_exact_match_counts_a_missing_answer_as_wrong():
    assert METRICS["exact_match"](["12", "7", "x y"], ["12", None, "x  y"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda m: m.name)
def test_no_rows_and_rows_of_another_set_are_refused(metric):
    with pytest.raises(BadData, match=f"{metric.name} needs at least one row"):
        metric([], [])
    with pytest.raises(Mismatch, match=metric.name):
        metric([0, 1, 1], [0.0, 1.0])
    if metric.needs != "score":
        with pytest.raises(Mismatch, match=r"\(2, 1\)"):
            metric([0, 1], [[0.0], [1.0]])


@pytest.mark.parametrize(
    "metric", [m for m in METRICS.values() if not m.allows_nan], ids=lambda m: m.name
)
def test_nan_predictions_are_refused_not_ranked(metric):
    with pytest.raises(BadData, match=r"1 .*s are NaN"):
        metric([0.0, 1.0], [math.nan, 1.0])


def test_every_task_of_a_probe_has_decisions_or_values_to_report():
    tasks = set(Task.__args__)
    assert {task for metric in METRICS.values() for task in metric.tasks} == tasks
    for task in tasks:
        assert any(m.needs != "score" for m in metrics_for_task(task))


def test_evaluate_reports_the_task_and_without_scores_leaves_out_what_needs_them():
    labels, decisions, scores = drawn(30, 1)
    full = evaluate(labels, decisions, scores, task="binary")
    assert list(full) == [m.name for m in metrics_for_task("binary")]
    bare = evaluate(labels, decisions, task="binary")
    assert set(full) - set(bare) == {"auc", "ap", "ece"}
    assert evaluate(labels, labels, task="binary", names=["mse", "f1"]) == {"mse": 0.0, "f1": 1.0}


def test_evaluate_takes_an_own_metric_and_refuses_an_unknown_name():
    own = Metric("sum", function=lambda y, d: float((y + d).sum()), needs="decision")
    assert evaluate([1, 2], [3, 4], task="regression", names=[own]) == {"sum": 10.0}
    with pytest.raises(UnknownName, match="Did you mean 'accuracy'"):
        evaluate([1], [1], task="binary", names=["acuracy"])
