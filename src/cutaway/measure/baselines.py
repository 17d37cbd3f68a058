"""What a probe is compared with: the majority class, and the words alone.

The BASELINES give predictions in the same shapes as probes and on the same splits: fitted on the
training rows (vocabulary and document frequencies too). The regularisation is the one with the
lowest log-loss on the validation rows (squared error for regression), as for the logistic probe:
accuracy can't choose it where one class is frequent, because all answers are then that class. Words
are counted once per data set; each split selects the columns that its training rows know.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from cutaway.core.lookup import lookup
from cutaway.core.textset import Task
from cutaway.measure.splits import Split

# Words keep their apostrophes; every other symbol is a separate word, so that texts of emoji
# have words too.
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often each term occurs in each text: (n, terms)."""

    counts: Any
    """A sparse matrix by rows."""
    single: NDArray[np.bool_]
    """Which terms are single words; the others are pairs of neighbours."""

    def known_to(self, rows: NDArray[np.integer], *, pairs: bool) -> NDArray[np.int64]:
        """The terms that occur in these rows, with or without pairs of words."""
        occurs = np.zeros(len(self.single), dtype=bool)
        occurs[self.counts[rows].indices] = True
        return np.flatnonzero(occurs if pairs else occurs & self.single)


def split_words(text: str) -> list[str]:
    """The words and marks of a text, in lower case."""
    return WORD_PATTERN.findall(text.lower())


def count_words(texts: Sequence[str], pairs: Sequence[str] | None = None) -> WordCounts:
    """The counts of words and of pairs of neighbours in each text.

    The second texts of pairs are counted apart from the first, so that a word's side counts.
    """
    first = _count_terms(texts)
    if pairs is None:
        return first
    second = _count_terms(pairs)
    counts = csr_matrix(hstack([first.counts, second.counts], format="csr"))
    return WordCounts(counts, np.concatenate([first.single, second.single]))


def _count_terms(texts: Sequence[str]) -> WordCounts:
    # A term that every text has keeps scikit-learn from refusing texts without words; it is
    # dropped again below.
    counter = CountVectorizer(analyzer=lambda text: ["", *_terms(text)], dtype=np.float64)
    counts = counter.fit_transform(texts)
    terms = counter.get_feature_names_out()
    kept = np.flatnonzero(terms != "")
    return WordCounts(
        csr_matrix(counts[:, kept]), np.array([" " not in t for t in terms[kept]], bool)
    )


def _terms(text: str) -> list[str]:
    words = split_words(text)
    return [*words, *(f"{a} {b}" for a, b in pairwise(words))]


BASELINE_C_GRID = (0.01, 0.1, 1.0, 10.0)
"""Inverse regularisation, from strong to weak; the validation rows choose."""
LEAST_PROBABILITY = 1e-12

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
    """The same scores for every row: the class frequencies, or the mean."""

    task: Task
    score: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.integer]) -> Prediction:
        """The same prediction for each row."""
        return _decide(self.task, np.repeat(self.score[None], len(rows), axis=0))


@dataclass(frozen=True, eq=False)
class TextBaseline:
    """A linear model of the words of a text."""

    words: WordCounts
    task: Task
    columns: NDArray[np.int64]
    """The terms of its vocabulary: those of the training rows."""
    weigh: Callable[[Any], Any]
    """Counts to features."""
    score: Scorer
    strength: float
    """The inverse regularisation with the best validation score."""

    def __call__(self, rows: NDArray[np.integer]) -> Prediction:
        """Predictions for these rows; unknown words are ignored."""
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

    With `refit`, the validation rows only choose the regularisation and are then added to the
    training rows.
    """
    make = lookup(BASELINES, name, kind="baseline")
    given = BaselineInputs(words, labels, split, task, n_classes)
    found = make(given)
    if not refit:
        return found
    whole = replace(split, train=np.union1d(split.train, split.val))
    # A constant baseline chose no regularisation: use the strongest.
    chosen = (found.strength,) if isinstance(found, TextBaseline) else BASELINE_C_GRID[:1]
    return make(replace(given, split=whole, strengths=chosen))


@dataclass(frozen=True, eq=False)
class BaselineInputs:
    """The data that a baseline is fitted on."""

    words: WordCounts
    labels: NDArray[Any]
    split: Split
    task: Task
    n_classes: int
    strengths: tuple[float, ...] = BASELINE_C_GRID
    """Candidates for the inverse regularisation."""


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
    # Of equal scores, argmax takes the first: the strongest regularisation.
    best = int(np.argmax(merits))
    return TextBaseline(words, task, columns, change, fitted[best], given.strengths[best])


def _decide(task: Task, scores: NDArray[np.float64]) -> Prediction:
    """Decisions from scores: the most probable class, or the value itself."""
    if task == "regression":
        return Prediction(scores, scores)
    if task == "multiclass":
        return Prediction(scores.argmax(axis=1), scores)
    return Prediction((scores > 0.5).astype(np.int64), scores)


def _validation_score(task: Task, labels: NDArray[Any], scores: NDArray[np.float64]) -> float:
    """The higher the better: minus the squared error, or minus the log-loss."""
    if task == "regression":
        return -float(np.mean((labels - scores) ** 2))
    if task == "multiclass":
        right = scores[np.arange(len(labels)), labels]
    else:
        right = np.where(labels == 1, scores, 1 - scores)
    # A class without a training row has a probability of 0 whatever the regularisation.
    return float(np.mean(np.log(np.maximum(right, LEAST_PROBABILITY))))


def _fit_binary(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    if labels.min() == labels.max():
        share = float(labels[0])
        return lambda features_: np.full(features_.shape[0], share)
    model = LogisticRegression(C=strength, solver="liblinear").fit(features, labels)
    return lambda features_: model.predict_proba(features_)[:, 1]


def _fit_multilabel(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    each = [_fit_binary(features, column, 2, strength) for column in labels.T]
    return lambda features_: np.stack([score(features_) for score in each], axis=1)


def _fit_multiclass(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    # One against the rest: as accurate as the multinomial model on counts of words, and
    # five to twenty-five times as fast. A class without a train row scores 0.
    marks = (labels[:, None] == np.arange(n_classes)).astype(np.int64)
    each = _fit_multilabel(features, marks, n_classes, strength)

    def score(features_: Any) -> NDArray[np.float64]:
        scores = each(features_)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    return score


def _fit_regression(features: Any, labels: NDArray[Any], n_classes: int, strength: float) -> Scorer:
    model = Ridge(alpha=1.0 / strength).fit(features, labels)
    return lambda features_: np.asarray(model.predict(features_), dtype=np.float64)


_FITTERS: dict[Task, Callable[[Any, NDArray[Any], int, float], Scorer]] = {
    "binary": _fit_binary,
    "multiclass": _fit_multiclass,
    "multilabel": _fit_multilabel,
    "regression": _fit_regression,
}
