"""The METRICS table: how each metric is computed, for which tasks, and how to read it.

A metric is a function of labels and predictions. Shapes: labels and decisions are (n,) class
numbers, 0/1 (n, cls) for multilabel, floats (n,) for regression; scores are (n,) for binary
(the score of class 1) and (n, cls) otherwise. The values equal scikit-learn's
(tested); written in numpy because a grid calls each metric thousands of times.

An undefined value is NaN, never an exception: AUC with one class in the labels,
average precision with no positive label, correlation with a constant, R2 of constant labels,
ECE of scores that are not probabilities. With several classes, AUC and average precision are
means over the classes that have a value. F1 without a true or predicted positive and MCC of
constant decisions are 0, as in scikit-learn.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.errors import BadData, Mismatch
from cutaway.core.lookup import lookup
from cutaway.core.textset import Task
from cutaway.measure.calibration import ece

NAN = float("nan")
PredictionKind = Literal["decision", "score", "value"]


Bounds = tuple[float | None, float | None]
UNIT: Bounds = (0.0, 1.0)


@dataclass(frozen=True)
class MetricFacts:
    """How to read a number: its name on an axis, its direction and its range."""

    name: str
    label: str = ""
    """Display name inside a sentence; the name without underscores by default."""
    higher_is_better: bool = True
    bounds: Bounds = (None, None)
    """The smallest and largest possible value, None where there is no limit."""
    proportion: bool = False
    """Whether it is a proportion of correct rows, so that Wilson's interval applies."""

    @property
    def title(self) -> str:
        """The display name."""
        return self.label or self.name.replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Metric(MetricFacts):
    """A metric computed from labels and predictions: one row of the METRICS table."""

    function: Callable[[NDArray[Any], NDArray[Any]], float]
    needs: PredictionKind
    """What the predictions are: decisions, scores, or values on the scale of the labels."""
    tasks: tuple[Task, ...] = ()
    """Tasks it is reported for by default; for others it can be requested by name."""
    allows_nan: bool = False
    """Whether NaN is a valid prediction (an answer that could not be decoded)."""

    def __call__(self, labels: ArrayLike, predictions: ArrayLike) -> float:
        """The value; BadData for no rows or NaN predictions, Mismatch for differing shapes."""
        truth, given = np.asarray(labels), np.asarray(predictions)
        if len(truth) == 0:
            raise BadData(f"{self.name} needs at least one row, got none.")
        same = len(truth) == len(given) if self.needs == "score" else truth.shape == given.shape
        if not same:
            raise Mismatch(f"{self.name}: labels {truth.shape} and {self.needs}s {given.shape}.")
        if given.dtype.kind == "f" and not self.allows_nan and bool(np.isnan(given).any()):
            raise BadData(f"{self.name}: {int(np.isnan(given).sum())} {self.needs}s are NaN.")
        if self.needs == "value":
            truth, given = truth.astype(np.float64), given.astype(np.float64)
        return self.function(truth, given)


def metric_facts(name: str) -> MetricFacts:
    """The facts about a metric in a table of results, also one that is not in METRICS.

    `accuracy_ref`, `accuracy_train` and `accuracy_val` share the facts of `accuracy`.
    """
    known = METRICS.get(name) or RECIPE_METRICS.get(name)
    if known is not None:
        return known
    base, _, variant = name.rpartition("_")
    if variant in ("ref", "train", "val") and base in METRICS:
        row = METRICS[base]
        label = f"{row.title} ({variant})"
        return MetricFacts(name, label, row.higher_is_better, row.bounds, row.proportion)
    return MetricFacts(name)


def metrics_for_task(task: Task) -> tuple[Metric, ...]:
    """The metrics reported for a task, in the table's order."""
    return tuple(metric for metric in METRICS.values() if task in metric.tasks)


def evaluate(
    labels: ArrayLike,
    decisions: ArrayLike,
    scores: ArrayLike | None = None,
    *,
    task: Task,
    names: Iterable[str | Metric] = (),
) -> dict[str, float]:
    """Every metric of the task (or those named) by name; without scores, those that need none.

    For regression the decisions are the predicted values.
    """
    chosen = [_metric(name) for name in names] or metrics_for_task(task)
    ready = [m for m in chosen if m.needs != "score" or scores is not None]
    given = {"decision": decisions, "value": decisions, "score": scores}
    return {m.name: m(labels, given[m.needs]) for m in ready}  # type: ignore[arg-type]


def _metric(name: str | Metric) -> Metric:
    return name if isinstance(name, Metric) else lookup(METRICS, name, kind="metric")


def accuracy(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """The share of correct decisions; of rows with every label correct for multilabel."""
    right = labels == decisions
    return float((right if right.ndim == 1 else right.all(axis=1)).mean())


def balanced_accuracy(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """The mean, over the classes that occur in the labels, of the share that is found."""
    right, _, true = _class_counts(labels, decisions)
    return float((right[true > 0] / true[true > 0]).mean())


def f1(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """The F1 of class 1."""
    true, predicted = labels == 1, decisions == 1
    total = np.count_nonzero(true) + np.count_nonzero(predicted)
    return float(2.0 * np.count_nonzero(true & predicted) / total) if total else 0.0


def f1_macro(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """The mean F1 over the classes that occur, in labels or decisions; over all for multilabel."""
    right, predicted, true = _class_counts(labels, decisions)
    total = predicted + true
    each = 2.0 * right / np.maximum(total, 1)
    return float(each.mean() if labels.ndim == 2 else each[total > 0].mean())


def f1_micro(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """The F1 over all decisions taken together; the accuracy where each row has one class."""
    right, predicted, true = _class_counts(labels, decisions)
    total = float(predicted.sum() + true.sum())
    return float(2.0 * right.sum() / total) if total else 0.0


def mcc(labels: NDArray[Any], decisions: NDArray[Any]) -> float:
    """Matthews' correlation of labels and decisions, for any number of classes (Gorodkin 2004)."""
    right, predicted, true = (t.astype(float) for t in _class_counts(labels, decisions))
    square = float(len(labels)) ** 2
    spread = (square - predicted @ predicted) * (square - true @ true)
    return (
        float((right.sum() * len(labels) - predicted @ true) / np.sqrt(spread)) if spread else 0.0
    )


def auc(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """The probability that a positive scores above a negative, ties counted half."""
    return _mean_over_classes(_auc, labels, scores)


def average_precision(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """The mean precision over the positives, each at the rank where it is found."""
    return _mean_over_classes(_average_precision, labels, scores)


def r2(labels: NDArray[Any], values: NDArray[Any]) -> float:
    """The share of the labels' variance that the values explain; below 0 if worse than the mean."""
    if labels.min() == labels.max():
        return NAN
    spread = labels - labels.mean()
    miss = labels - values
    return float(1.0 - (miss @ miss) / (spread @ spread))


def mse(labels: NDArray[Any], values: NDArray[Any]) -> float:
    """The mean squared error."""
    miss = labels - values
    return float(miss @ miss / len(miss))


def pearson(labels: NDArray[Any], values: NDArray[Any]) -> float:
    """The linear correlation of labels and values."""
    if labels.min() == labels.max() or values.min() == values.max():
        return NAN
    x, y = labels - labels.mean(), values - values.mean()
    return float(np.clip((x @ y) / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))


def spearman(labels: NDArray[Any], values: NDArray[Any]) -> float:
    """The correlation of the ranks of labels and values, ties sharing their mean rank."""
    return pearson(_ranks(labels), _ranks(values))


def log_rmse(truth: NDArray[Any], answers: NDArray[Any], *, worst: float | None = None) -> float:
    """sqrt(mean (ln(1 + truth) - ln(1 + answer))^2) over all answers.

    NaN is an answer that could not be decoded. It and answers below 0 count as the worse of 0 and
    `worst`; answers above `worst` count as `worst`, so that no answer is worse than a missing one.
    `worst` defaults to one digit more than the largest truth has.
    """
    if truth.min() < 0:
        raise BadData(f"log_rmse needs truths of at least 0, got {truth.min()!r}.")
    ceiling = float(10 * truth.max() + 9 if worst is None else worst)
    if ceiling < truth.max():
        raise BadData(f"worst must be at least the largest truth {truth.max()!r}, got {worst!r}.")
    level, top = np.log1p(truth), np.log1p(ceiling)
    usable = answers >= 0
    predicted = np.log1p(np.where(usable, np.minimum(answers, ceiling), 0.0))
    miss = np.where(usable, np.abs(level - predicted), np.maximum(level, top - level))
    return float(np.sqrt(np.mean(miss**2)))


def exact_match(truth: NDArray[Any], answers: NDArray[Any]) -> float:
    """The share of answers equal to the truth, character by character; None never is."""
    return float(np.mean(truth == answers))


SINGLE_LABEL_TASKS: tuple[Task, ...] = ("binary", "multiclass")
CLASSIFICATION_TASKS: tuple[Task, ...] = ("binary", "multiclass", "multilabel")
# F1 micro equals the accuracy if each row has one class.
MULTI_TASKS: tuple[Task, ...] = ("multiclass", "multilabel")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", bounds=UNIT, proportion=True, function=accuracy, needs="decision",
               tasks=CLASSIFICATION_TASKS),
        Metric("balanced_accuracy", bounds=UNIT, function=balanced_accuracy, needs="decision",
               tasks=SINGLE_LABEL_TASKS),
        Metric("f1", "F1", bounds=UNIT, function=f1, needs="decision", tasks=("binary",)),
        Metric("f1_macro", "F1 (macro)", bounds=UNIT, function=f1_macro, needs="decision",
               tasks=CLASSIFICATION_TASKS),
        Metric("f1_micro", "F1 (micro)", bounds=UNIT, function=f1_micro, needs="decision",
               tasks=MULTI_TASKS),
        Metric("mcc", "Matthews correlation", bounds=(-1.0, 1.0), function=mcc, needs="decision",
               tasks=SINGLE_LABEL_TASKS),
        Metric("auc", "ROC AUC", bounds=UNIT, function=auc, needs="score",
               tasks=CLASSIFICATION_TASKS),
        Metric("ap", "average precision", bounds=UNIT, function=average_precision, needs="score",
               tasks=CLASSIFICATION_TASKS),
        Metric("ece", "calibration error (ECE)", higher_is_better=False, bounds=UNIT,
               function=lambda labels, scores: ece(scores, labels), needs="score",
               tasks=SINGLE_LABEL_TASKS),
        Metric("r2", "R²", bounds=(None, 1.0), function=r2, needs="value", tasks=("regression",)),
        Metric("mse", "mean squared error", higher_is_better=False, bounds=(0.0, None),
               function=mse, needs="value", tasks=("regression",)),
        Metric("spearman", "Spearman correlation", bounds=(-1.0, 1.0), function=spearman,
               needs="value", tasks=("regression",)),
        Metric("pearson", "Pearson correlation", bounds=(-1.0, 1.0), function=pearson,
               needs="value", tasks=("regression",)),
        Metric("log_rmse", higher_is_better=False, bounds=(0.0, None), function=log_rmse,
               needs="value", allows_nan=True),
        Metric("exact_match", bounds=UNIT, proportion=True, function=exact_match,
               needs="decision", tasks=("text",)),
    )
}  # fmt: skip

RECIPE_METRICS: dict[str, MetricFacts] = {
    row.name: row
    for row in (
        MetricFacts("mdl_bits", "code length (bits)", higher_is_better=False),
        MetricFacts("agreement", bounds=UNIT),
        MetricFacts("undecodable", higher_is_better=False, bounds=UNIT),
        *(
            MetricFacts(name, higher_is_better=False, bounds=(0.0, None))
            for name in ("lm_loss", "perplexity")
        ),
        *(MetricFacts(name, higher_is_better=False) for name in ("loss", "rmse", "mae", "brier")),
    )
}
"""Facts about the numbers that a recipe measures itself, or that imported logs contain."""

MAIN_METRIC_ORDER = (
    *("precision@1", "exact_match", "accuracy", "f1_macro", "f1", "auc", "r2", "spearman"),
    *("pearson", "mcc", "ap"),
)
"""The main metric of a run that names none: the first of these that was measured."""


def _class_counts(
    labels: NDArray[Any], decisions: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per class: true positives, predicted positives, actual positives."""
    if labels.ndim == 2:
        true, predicted = labels == 1, decisions == 1
        return (true & predicted).sum(axis=0), predicted.sum(axis=0), true.sum(axis=0)
    whole, picked = labels.astype(np.int64), decisions.astype(np.int64)
    size = int(max(whole.max(), picked.max())) + 1
    right = np.bincount(whole[whole == picked], minlength=size)
    return right, np.bincount(picked, minlength=size), np.bincount(whole, minlength=size)


def _mean_over_classes(
    function: Callable[[NDArray[np.bool_], NDArray[Any]], float],
    labels: NDArray[Any],
    scores: NDArray[Any],
) -> float:
    """The value for class 1 where scores are (n,), the mean over classes where (n, cls)."""
    if scores.ndim == 1:
        return function(labels == 1, scores)
    truth = labels == 1 if labels.ndim == 2 else labels[:, None] == np.arange(scores.shape[1])
    each = np.array([function(truth[:, k], scores[:, k]) for k in range(scores.shape[1])])
    known = each[~np.isnan(each)]
    return float(known.mean()) if known.size else NAN


def _auc(positive: NDArray[np.bool_], scores: NDArray[Any]) -> float:
    high, low = scores[positive], np.sort(scores[~positive])
    if high.size == 0 or low.size == 0:
        return NAN
    # Each negative below a positive is counted by both searches, each tie by one.
    found = low.searchsorted(high, "left").sum() + low.searchsorted(high, "right").sum()
    return float(found / (2.0 * high.size * low.size))


def _average_precision(positive: NDArray[np.bool_], scores: NDArray[Any]) -> float:
    if not positive.any():
        return NAN
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    # Equal scores share one threshold: the last of a tie.
    stops = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    found = np.cumsum(positive[order])[stops]
    return float(np.sum(np.diff(found, prepend=0) * found / (stops + 1)) / found[-1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2.0)[place]
