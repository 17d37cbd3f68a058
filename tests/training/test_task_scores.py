"""Scores of a model on a task against independent calculations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, f1_score

from cutaway.measure.intervals import wilson
from cutaway.training.task_model import make_plain_examples
from cutaway.training.task_scores import (
    block_scores,
    constant_probabilities,
    majority_scores,
    metric_names,
    metric_values,
    scores_with_intervals,
)
from tests.training.tasks import task_split


@pytest.fixture
def examples(tiny_lm):
    return make_plain_examples(tiny_lm("gpt2"), task_split(), None)


@pytest.fixture
def proba(examples):
    positive = np.random.default_rng(0).random(len(examples))
    return np.stack([1 - positive, positive], axis=1)


def regression(examples):
    values = np.linspace(-1, 3, len(examples))
    return replace(examples, task="regression", metric="pearson", labels=values, bounds=(-1.0, 3.0))


def test_the_tasks_own_metric_comes_first_and_none_twice(examples) -> None:
    names = metric_names(replace(examples, metric="f1"))
    assert names[0] == "f1"
    assert len(names) == len(set(names)) > 2


def test_metrics_equal_scikit_learns(examples, proba) -> None:
    values = metric_values(examples, proba, ["accuracy", "f1"])
    predicted = proba.argmax(axis=1)
    assert values["accuracy"] == pytest.approx(accuracy_score(examples.labels, predicted))
    assert values["f1"] == pytest.approx(f1_score(examples.labels, predicted))


def test_a_regression_predicts_between_its_bounds(examples, proba) -> None:
    task = regression(examples)
    expected = pearsonr(task.labels, -1 + 4 * proba[:, 1]).statistic
    assert metric_values(task, proba, ["pearson"])["pearson"] == pytest.approx(expected)


def test_intervals_contain_the_value(examples, proba) -> None:
    scores = scores_with_intervals(examples, proba)
    assert "ece" in scores
    for interval in scores.values():
        assert interval.low <= interval.mean <= interval.high
        assert interval.low < interval.high
    accuracy, n = scores["accuracy"], len(examples)
    assert accuracy == wilson(accuracy.mean * n, n)


def test_the_majority_baseline_predicts_one_class_for_all(examples) -> None:
    skewed = replace(examples, labels=(np.arange(len(examples)) % 4 == 0).astype(int))
    scores = majority_scores(skewed)
    assert scores["accuracy"].mean == pytest.approx(1 - skewed.labels.mean())
    assert majority_scores(regression(examples))["mse"].mean == pytest.approx(
        np.var(regression(examples).labels), rel=1e-6
    )


def test_blocks_of_an_accuracy_have_it_as_their_mean_and_its_rows_as_their_worth(
    examples, proba
) -> None:
    found = block_scores(examples, proba)
    accuracy = metric_values(examples, proba, ["accuracy"])["accuracy"]
    assert found.values == (accuracy,)
    assert found.worth == len(examples)
    assert len(found.blocks) == min(20, len(examples))
    assert np.mean(found.blocks) == pytest.approx(accuracy, abs=0.02)


def test_the_constant_prediction_scores_as_the_majority_baseline(examples) -> None:
    skewed = replace(examples, labels=np.arange(len(examples)) % 3 // 2)
    found = block_scores(skewed, constant_probabilities(skewed))
    assert found.mean == majority_scores(skewed)["accuracy"].mean
