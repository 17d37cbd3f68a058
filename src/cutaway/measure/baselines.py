"""What a probe must beat: the commonest label, and the words alone.

The BASELINES answer in the shapes that probes answer in, for the same splits: fitted on train
rows (their vocabulary and word rarities too), tuned on validation rows, asked about any rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from cutaway.core.lookup import lookup
from cutaway.core.textset import Task
from cutaway.measure.splits import Split
from cutaway.measure.words import WordCounts

BASELINE_C_GRID = (0.01, 0.1, 1.0, 10.0)
"""Inverse regularisation, from strong to weak; the validation rows choose."""

Scorer = Callable[[Any], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Decisions and scores, in the shapes `metrics` takes; for regression both are the values."""

    decisions: NDArray[Any]
    scores: NDArray[np.float64]


class Baseline(Protocol):
    """A fitted baseline: row numbers in, a prediction for each out."""

    def __call__(self, rows: NDArray[np.integer]) -> Prediction: ...


@dataclass(frozen=True, eq=False)
class ConstantBaseline:
    """The same scores for every row: the shares of the classes, or the mean."""

    task: Task
    score: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.integer]) -> Prediction:
        """The same answer for each row."""
        return _decide(self.task, np.repeat(self.score[None], len(rows), axis=0))


@dataclass(frozen=True, eq=False)
class TextBaseline:
    """A linear model of the words of a text."""

    words: WordCounts
    task: Task
    columns: NDArray[np.int64]
    """The terms it knows: those of the train rows."""
    weigh: Callable[[Any], Any]
    """Counts to features."""
    score: Scorer
    strength: float
    """The regularisation that did best on the validation rows."""

    def __call__(self, rows: NDArray[np.integer]) -> Prediction:
        """The answers for these rows; words it doesn't know say nothing."""
        return _decide(self.task, self.score(self.weigh(self.words.counts[rows][:, self.columns])))


def fit_baseline(
    name: str,
    words: WordCounts,
    labels: NDArray[Any],
    split: Split,
    *,
    task: Task,
    n_classes: int = 2,
    refit: bool = False,
) -> Baseline:
    """The baseline called `name`, fitted on the split's train rows.

    With `refit` the validation rows only choose its strength and are learned from in the end, as
    where features are: then both learn from the same rows.
    """
    make = lookup(BASELINES, name, kind="baseline")
    given = BaselineInputs(words, labels, split, task, n_classes)
    found = make(given)
    if not refit:
        return found
    whole = replace(split, train=np.union1d(split.train, split.val))
    # Where the train rows alone left nothing to choose, the strongest is the careful choice.
    chosen = (found.strength,) if isinstance(found, TextBaseline) else BASELINE_C_GRID[:1]
    return make(replace(given, split=whole, strengths=chosen))


@dataclass(frozen=True, eq=False)
class BaselineInputs:
    """What a baseline is made from."""

    words: WordCounts
    labels: NDArray[Any]
    split: Split
    task: Task
    n_classes: int
    strengths: tuple[float, ...] = BASELINE_C_GRID
    """To choose from."""


def _majority(given: BaselineInputs) -> Baseline:
    seen = given.labels[given.split.train]
    if given.task == "multiclass":
        seen = seen[:, None] == np.arange(given.n_classes)
    return ConstantBaseline(given.task, np.asarray(seen.mean(axis=0), dtype=np.float64))


def _bag_of_words(given: BaselineInputs) -> Baseline:
    return _fit_text_baseline(given, pairs=False, weigh=None)


def _tfidf(given: BaselineInputs) -> Baseline:
    return _fit_text_baseline(given, pairs=True, weigh=TfidfTransformer(sublinear_tf=True))


BASELINES: dict[str, Callable[[BaselineInputs], Baseline]] = {
    "majority": _majority,
    "bow": _bag_of_words,
    "tfidf": _tfidf,
}


def _fit_text_baseline(
    given: BaselineInputs, *, pairs: bool, weigh: TfidfTransformer | None
) -> Baseline:
    words, labels, split, task = given.words, given.labels, given.split, given.task
    columns = words.known_to(split.train, pairs=pairs)
    truth = labels[split.train]
    if len(columns) == 0 or bool((truth == truth[0]).all()):
        return _majority(given)
    train = words.counts[split.train][:, columns]
    change = (lambda counts: counts) if weigh is None else weigh.fit(train).transform
    val = change(words.counts[split.val][:, columns])
    fitted = [_FITTERS[task](change(train), truth, given.n_classes, c) for c in given.strengths]
    merits = [_validation_score(task, labels[split.val], score(val)) for score in fitted]
    # The first of equals is the one with the strongest regularisation.
    best = int(np.argmax(merits))
    return TextBaseline(words, task, columns, change, fitted[best], given.strengths[best])


def _decide(task: Task, scores: NDArray[np.float64]) -> Prediction:
    """The decisions that follow from scores: the likeliest class, or the value itself."""
    if task == "regression":
        return Prediction(scores, scores)
    if task == "multiclass":
        return Prediction(scores.argmax(axis=1), scores)
    return Prediction((scores > 0.5).astype(np.int64), scores)


def _validation_score(task: Task, labels: NDArray[Any], scores: NDArray[np.float64]) -> float:
    if task == "regression":
        return -float(np.mean((labels - scores) ** 2))
    return float(np.mean(_decide(task, scores).decisions == labels))


def _fit_binary(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    if labels.min() == labels.max():
        share = float(labels[0])
        return lambda asked: np.full(asked.shape[0], share)
    model = LogisticRegression(C=strength, solver="liblinear").fit(features, labels)
    return lambda asked: model.predict_proba(asked)[:, 1]


def _fit_multilabel(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    each = [_fit_binary(features, column, 2, strength) for column in labels.T]
    return lambda asked: np.stack([score(asked) for score in each], axis=1)


def _fit_multiclass(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    # One against the rest: as accurate as the multinomial model on counts of words, and
    # five to twenty-five times as fast. A class without a train row scores 0.
    marks = (labels[:, None] == np.arange(n_classes)).astype(np.int64)
    each = _fit_multilabel(features, marks, n_classes, strength)

    def score(asked: Any) -> NDArray[np.float64]:
        scores = each(asked)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    return score


def _fit_regression(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    model = Ridge(alpha=1.0 / strength).fit(features, labels)
    return lambda asked: np.asarray(model.predict(asked), dtype=np.float64)


_FITTERS: dict[Task, Callable[[Any, NDArray[Any], int, float], Scorer]] = {
    "binary": _fit_binary,
    "multiclass": _fit_multiclass,
    "multilabel": _fit_multilabel,
    "regression": _fit_regression,
}
