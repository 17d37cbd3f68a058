"""The numbers of a fine-tuning: scores with intervals, the tidy table, the verdict."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cutaway.measure.intervals import Interval, bootstrap, wilson
from cutaway.measure.metrics import METRICS, evaluate, metrics_for_task
from cutaway.training.prompting import PromptedExamples, predict_from_proba

Scores = dict[str, Interval]
NAN = float("nan")


def metric_names(asked: PromptedExamples) -> list[str]:
    """What is measured: the task's own metric first, then what its kind is measured by."""
    return list(
        dict.fromkeys([asked.metric, *(metric.name for metric in metrics_for_task(asked.task))])
    )


def metric_values(
    asked: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str]
) -> dict[str, float]:
    """The metrics of these answers, without intervals."""
    scores = probabilities[:, 1] if asked.task == "binary" else probabilities
    decided = predict_from_proba(asked, probabilities)
    return evaluate(asked.labels, decided, scores, task=asked.task, names=names)


def scores_with_intervals(
    asked: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str] = ()
) -> Scores:
    """Metrics with 95 % intervals: Wilson's for accuracy, the bootstrap's for the others.

    The calibration error has none: resampling is biased for it.
    """
    values = metric_values(asked, probabilities, names or metric_names(asked))
    return {name: _interval(asked, probabilities, name, value) for name, value in values.items()}


def _interval(
    asked: PromptedExamples, probabilities: NDArray[np.float64], name: str, value: float
) -> Interval:
    n = len(asked)
    if name == "accuracy":
        return wilson(value * n, n)
    if name == "ece" or n < 2:
        return Interval(value, NAN, NAN, 0.95, n)

    def again(rows: NDArray[np.int64]) -> float:
        return metric_values(asked.take(rows), probabilities[rows], [name])[name]

    found = bootstrap(again, n, seed=0, resamples=200)
    return Interval(value, found.low, found.high, 0.95, n)


def majority_scores(asked: PromptedExamples) -> Scores:
    """The scores of one answer for all: the commonest class, or the mean."""
    n, many = len(asked), asked.targets.shape[1]
    if asked.task == "regression":
        low, high = asked.bounds
        share = (float(np.mean(asked.labels)) - low) / max(high - low, 1e-12)
        constant = np.tile([1 - share, share], (n, 1))
    else:
        shares = np.bincount(asked.labels.astype(np.int64), minlength=many) / n
        constant = np.tile(shares, (n, 1))
    names = [name for name in metric_names(asked) if METRICS[name].needs != "score"]
    values = metric_values(asked, constant, names)
    return {name: _interval_without_bootstrap(name, value, n) for name, value in values.items()}


def _interval_without_bootstrap(name: str, value: float, n: int) -> Interval:
    return wilson(value * n, n) if name == "accuracy" else Interval(value, NAN, NAN, 0.95, n)
