import math

import numpy as np
import polars as pl
import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.main_metric import (
    REFERENCE_METRICS,
    accuracy_warning,
    choices_score,
    main_metric,
    majority_share,
)
from cutaway.measure.intervals import Interval, corrected_t


def a_set(task: str, labels) -> TextSet:
    labels = np.asarray(labels)
    return TextSet("rows", tuple(map(str, range(len(labels)))), labels=labels, task=task)


def binary(zeros: int, ones: int) -> TextSet:
    return a_set("binary", [0] * zeros + [1] * ones)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (binary(50, 50), "accuracy"), (binary(60, 40), "accuracy"),
        (binary(61, 39), "balanced_accuracy"), (binary(39, 61), "balanced_accuracy"),
        (binary(90, 10), "balanced_accuracy"), (binary(91, 9), "ap"),
        # Average precision is of class 1: it says little when class 0 is the rare one.
        (binary(5, 95), "balanced_accuracy"),
        (a_set("multiclass", [0, 1, 2] * 20), "accuracy"),
        (a_set("multiclass", [0] * 30 + [1] * 30 + [2] * 19), "balanced_accuracy"),
        # A class of the task that no row has is not a class of these rows.
        (a_set("multiclass", [0, 1, 3] * 20), "accuracy"),
        (a_set("regression", [0.5, 1.0, 7.0]), "r2"),
        (a_set("multilabel", [[0, 1], [1, 1]]), "f1_macro"),
    ],
)  # fmt: skip
def test_the_rule_follows_the_task_and_the_class_frequencies(texts, expected):
    assert main_metric(texts) == expected


def test_a_metric_that_is_asked_for_replaces_the_rule():
    assert main_metric(binary(95, 5), "accuracy") == "accuracy"
    assert main_metric(binary(50, 50), "mcc") == "mcc"
    assert main_metric(binary(50, 50), "f1_ref", more=REFERENCE_METRICS) == "f1_ref"


@pytest.mark.parametrize(
    ("texts", "asked", "message"),
    [
        (binary(5, 5), "r2", "'r2' doesn't fit 'rows', a binary set.*accuracy"),
        (a_set("regression", [0.5, 1.5]), "accuracy", "regression set.*one of: r2"),
        (a_set("multiclass", [0, 1, 2]), "f1", "multiclass set.*f1_macro"),
        (a_set("multiclass", [0, 1, 2]), "f1_ref", "multiclass set"),
        # A constant that gives the class frequencies has a calibration error of 0.
        (binary(5, 5), "ece", "'ece' can't be the main one: the same answer.*one of: accuracy"),
        (binary(5, 5), "log_loss", "Unknown metric 'log_loss'. Use --metric auto"),
        (binary(5, 5), "acuracy", "Unknown metric 'acuracy'.*accuracy"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused_with_those_that_do(texts, asked, message):
    with pytest.raises(BadSpec, match=message):
        main_metric(texts, asked, more=REFERENCE_METRICS)


def auc(mean: float, low: float = math.nan, high: float = math.nan) -> Interval:
    return Interval(mean, low, high, 0.95, 5)


ACCURACY = Interval(0.882, 0.1, 0.9, 0.95, 5)
START = "Its accuracy is 0.882, not above the 0.887 of always answering the most frequent class"


@pytest.mark.parametrize(
    ("given", "end"),
    [
        (auc(0.748, 0.7, 0.79), "; ROC AUC is 0.748 [0.700, 0.790], better than chance (0.5)."),
        (auc(0.52, 0.4, 0.6),
         "; ROC AUC is 0.520 [0.400, 0.600], not shown to be above chance (0.5)."),
        (auc(0.3, 0.2, 0.4),
         "; ROC AUC is 0.300 [0.200, 0.400], not shown to be above chance (0.5)."),
        (auc(0.748), "; ROC AUC is 0.748 (chance: 0.5)."),
        (None, "."),
    ],
)  # fmt: skip
def test_accuracy_at_or_below_the_majority_is_reported_with_the_auc(given, end):
    assert accuracy_warning(ACCURACY, given, 0.887) == START + end
    assert accuracy_warning(ACCURACY, given, 0.882) != ""
    assert accuracy_warning(ACCURACY, given, 0.88) == accuracy_warning(None, given, 0.887) == ""


def scores(**cells) -> pl.DataFrame:
    """Rows of cells with an AUC in each of three repeats."""
    lines = [
        {"layers": layer, "repeat": repeat, "metric": "auc", "value": value, "n_train": 80,
         "n_test": 20, "low": 0.1, "high": 0.9}
        for layer, values in cells.items()
        for repeat, value in enumerate(values)
    ]  # fmt: skip
    return pl.DataFrame(lines)


def test_a_score_is_that_of_the_cell_chosen_in_each_repeat():
    rows = scores(a=(0.6, 0.7, 0.8), b=(0.4, 0.5, 0.3))
    own = choices_score(rows, "auc", {r: {"layers": "a"} for r in range(3)})
    assert own == Interval(pytest.approx(0.7), 0.1, 0.9, 0.95, 3)
    mixed = choices_score(rows, "auc", {0: {"layers": "a"}, 1: {"layers": "b"}, 2: {"layers": "a"}})
    expected = corrected_t([0.6, 0.5, 0.8], n_train=80, n_test=20)
    assert mixed is not None and mixed.mean == pytest.approx(expected.mean)
    assert (mixed.low, mixed.high) == (max(0.0, expected.low), min(1.0, expected.high))
    assert choices_score(rows, "accuracy", {0: {"layers": "a"}}) is None


def test_the_majority_has_the_share_of_the_most_frequent_class():
    assert majority_share(binary(3, 9)) == 0.75
