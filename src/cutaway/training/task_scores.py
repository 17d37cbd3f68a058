"""Metrics of a model on a task, with confidence intervals."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.intervals import Interval, wilson
from cutaway.measure.jackknife import one_set_interval, perfect_rows
from cutaway.measure.metrics import METRICS, evaluate, metrics_for_task
from cutaway.measure.shared_rows import BlockScores, block_values
from cutaway.training.prompting import PromptedExamples, predict_from_proba

Scores = dict[str, Interval]
NAN = float("nan")


def metric_names(examples: PromptedExamples) -> list[str]:
    """The metrics to compute: the task's own first, then those of its kind."""
    names = [examples.metric, *(metric.name for metric in metrics_for_task(examples.task))]
    return list(dict.fromkeys(names))


def metric_values(
    examples: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str]
) -> dict[str, float]:
    """The metrics of these predictions, without intervals."""
    scores = probabilities[:, 1] if examples.task == "binary" else probabilities
    predicted = predict_from_proba(examples, probabilities)
    return evaluate(examples.labels, predicted, scores, task=examples.task, names=names)


def scores_with_intervals(
    examples: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str] = ()
) -> Scores:
    """Metrics with 95 % intervals: Wilson for accuracy, from blocks of rows for the others."""
    values = metric_values(examples, probabilities, names or metric_names(examples))
    return {name: _interval(examples, probabilities, name, value) for name, value in values.items()}


def _interval(
    examples: PromptedExamples, probabilities: NDArray[np.float64], name: str, value: float
) -> Interval:
    n = len(examples)
    if name == "accuracy":
        return wilson(value * n, n)
    if n < 2:
        return Interval(value, NAN, NAN, 0.95, n)
    some = _on_rows(examples, probabilities, name)
    scores = probabilities[:, 1] if examples.task == "binary" else probabilities
    return one_set_interval(name, examples.labels, some, probabilities=scores)


def _on_rows(
    examples: PromptedExamples, probabilities: NDArray[np.float64], name: str
) -> Callable[[NDArray[np.int64]], float]:
    """The metric as a function of some of the rows."""
    return lambda rows: metric_values(examples.take(rows), probabilities[rows], [name])[name]


def block_scores(examples: PromptedExamples, probabilities: NDArray[np.float64]) -> BlockScores:
    """The task's metric by blocks of rows, for comparisons with other models on the same rows."""
    name, n = examples.metric, len(examples)
    value = _on_rows(examples, probabilities, name)
    worth = perfect_rows(name, examples.labels)
    return BlockScores(block_values(value, n), (value(np.arange(n)),), worth)


def constant_probabilities(examples: PromptedExamples) -> NDArray[np.float64]:
    """The prediction of the majority baseline: the most frequent class, or the mean."""
    n, many = len(examples), examples.targets.shape[1]
    if examples.task == "regression":
        low, high = examples.bounds
        share = (float(np.mean(examples.labels)) - low) / max(high - low, 1e-12)
        return np.tile([1 - share, share], (n, 1))
    shares = np.bincount(examples.labels.astype(np.int64), minlength=many) / n
    return np.tile(shares, (n, 1))


def majority_scores(examples: PromptedExamples) -> Scores:
    """The scores of a constant prediction: the most frequent class, or the mean."""
    n, constant = len(examples), constant_probabilities(examples)
    names = [name for name in metric_names(examples) if METRICS[name].needs != "score"]
    values = metric_values(examples, constant, names)
    return {
        name: wilson(value * n, n) if name == "accuracy" else Interval(value, NAN, NAN, 0.95, n)
        for name, value in values.items()
    }
