"""Baselines of a probe: word counts, text models."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline

from cutaway.core.errors import UnknownName
from cutaway.measure.baselines import (
    BASELINE_C_GRID,
    BASELINES,
    ConstantBaseline,
    _terms,
    count_words,
    fit_baseline,
    split_words,
)
from cutaway.measure.metrics import evaluate, metrics_for_task
from cutaway.measure.splits import Split, SplitPlan, split


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the CAT!", ["the", "cat", ",", "the", "cat", "!"]),
        ("don't can’t o'", ["don't", "can’t", "o", "'"]),
        ("😀 naïve 東京", ["😀", "naïve", "東京"]),
        (" \n", []),
    ],
)
def test_words_keep_apostrophes_and_marks_are_words(text, words):
    assert split_words(text) == words


def test_words_and_pairs_of_neighbours_are_counted():
    words = count_words(["a b a b", "b"])
    assert words.single.sum() == 2
    # a a-b b b-a, in the order of the alphabet
    assert words.counts.toarray().tolist() == [[2, 2, 2, 1], [0, 0, 1, 0]]


def test_a_word_of_the_second_text_is_another_term_than_the_same_of_the_first():
    words = count_words(["yes", "no"], pairs=["no", "yes"])
    assert words.counts.shape == (2, 4)
    assert (words.counts[0].toarray() != words.counts[1].toarray()).any()


def test_terms_known_to_rows_are_those_that_occur_in_them():
    words = count_words(["a b", "b c", "d"])
    single = words.known_to(np.array([0, 1]), pairs=False)
    assert words.counts[2][:, single].sum() == 0
    assert len(single) == 3
    assert len(words.known_to(np.array([0, 1]), pairs=True)) == 5


def test_texts_without_words_have_no_terms():
    assert count_words(["", "  "]).counts.shape == (2, 0)


every_baseline = pytest.mark.parametrize("name", BASELINES)
MOODS = (("dull", "grim", "sad"), ("bright", "glad", "merry"), ("odd", "weird", "queer"))


def corpus(task, n=240, seed=0):
    """Texts whose mood words give the label away, among words that say nothing."""
    rng = np.random.default_rng(seed)
    mood = rng.integers(0, 2 if task in ("binary", "regression") else 3, n)
    said = [MOODS[m][rng.integers(3)] for m in mood]
    idle = [f"thing{rng.integers(40)} and item{rng.integers(40)}" for _ in range(n)]
    texts = [f"A {a} {b}." for a, b in zip(said, idle, strict=True)]
    labels = {
        "binary": mood,
        "multiclass": mood,
        "multilabel": np.stack([mood == 0, mood != 1, np.zeros(n)], axis=1).astype(int),
        "regression": mood + rng.normal(0, 0.05, n),
    }[task]
    return texts, labels


def fitted(name, task):
    texts, labels = corpus(task)
    words = count_words(texts)
    one = split(labels, SplitPlan(repeats=1), task=task)[0]
    return fit_baseline(name, words, labels, one, task=task, n_classes=3), texts, labels, one


@every_baseline
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "regression"])
def test_a_baseline_answers_in_the_shapes_that_metrics_take(name, task):
    model, _, labels, one = fitted(name, task)
    answer = model(one.test)
    assert answer.decisions.shape == labels[one.test].shape
    assert answer.scores.shape == ((len(one.test), 3) if "multi" in task else (len(one.test),))
    found = evaluate(labels[one.test], answer.decisions, answer.scores, task=task)
    assert set(found) == {metric.name for metric in metrics_for_task(task)}
    if task != "regression":
        assert (answer.scores >= 0).all()
        assert (answer.scores <= 1).all()
    if task == "multiclass":
        np.testing.assert_allclose(answer.scores.sum(axis=1), 1.0)


@pytest.mark.parametrize("name", ["bow", "tfidf"])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "regression"])
def test_words_that_give_the_label_away_are_found(name, task):
    model, _, labels, one = fitted(name, task)
    main = "r2" if task == "regression" else "accuracy"
    answer = model(one.test)
    assert evaluate(labels[one.test], answer.decisions, task=task)[main] > 0.95


PIPELINES = {
    "bow": lambda: CountVectorizer(analyzer=split_words),
    "tfidf": lambda: TfidfVectorizer(analyzer=_terms, sublinear_tf=True),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_counting_once_equals_a_pipeline_that_sees_the_train_rows_only(name):
    model, texts, labels, one = fitted(name, "binary")
    strength = model.strength
    plain = make_pipeline(PIPELINES[name](), LogisticRegression(C=strength, solver="liblinear"))
    plain.fit([texts[i] for i in one.train], labels[one.train])
    expected = plain.predict_proba([texts[i] for i in one.test])[:, 1]
    np.testing.assert_allclose(model(one.test).scores, expected, atol=1e-9)


@every_baseline
def test_nothing_of_the_test_rows_reaches_the_model(name):
    texts, labels = corpus("binary")
    one = split(labels, SplitPlan(repeats=1), task="binary")[0]
    kept = fit_baseline(name, count_words(texts), labels, one, task="binary")(one.val)
    swapped, changed = list(texts), labels.copy()
    for i in one.test:
        swapped[i], changed[i] = "glad glad brand new words", 1 - labels[i]
    again = fit_baseline(name, count_words(swapped), changed, one, task="binary")(one.val)
    np.testing.assert_allclose(again.scores, kept.scores)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_strength_has_the_lowest_log_loss_on_validation_rows(name):
    texts, labels = corpus("binary")
    noisy = np.where(np.random.default_rng(5).random(240) < 0.25, 1 - labels, labels)
    one = split(noisy, SplitPlan(repeats=1, fractions=(0.4, 0.3, 0.3)), task="binary")[0]
    losses = []
    for strength in BASELINE_C_GRID:
        plain = make_pipeline(PIPELINES[name](), LogisticRegression(C=strength, solver="liblinear"))
        plain.fit([texts[i] for i in one.train], noisy[one.train])
        p = plain.predict_proba([texts[i] for i in one.val])
        losses.append(log_loss(noisy[one.val], p))
    found = fit_baseline(name, count_words(texts), noisy, one, task="binary")
    assert found.strength == BASELINE_C_GRID[int(np.argmin(losses))]


@pytest.mark.parametrize("name", PIPELINES)
def test_words_of_a_rare_class_are_found_where_every_answer_is_the_frequent_one(name):
    texts, mood = corpus("binary", n=600)
    labels = (mood * (np.random.default_rng(3).random(600) < 0.3)).astype(int)
    one = split(labels, SplitPlan(repeats=1), task="binary")[0]
    model = fit_baseline(name, count_words(texts), labels, one, task="binary")
    answer = model(one.test)
    assert (answer.decisions == 0).all()
    assert model.strength > min(BASELINE_C_GRID)
    assert roc_auc_score(mood[one.test], answer.scores) > 0.95


@pytest.mark.parametrize("name", PIPELINES)
def test_refitted_it_learns_from_the_rows_that_chose_its_strength_too(name):
    texts, labels = corpus("binary")
    noisy = np.where(np.random.default_rng(5).random(240) < 0.25, 1 - labels, labels)
    one = split(noisy, SplitPlan(repeats=1, fractions=(0.4, 0.3, 0.3)), task="binary")[0]
    chosen = fit_baseline(name, count_words(texts), noisy, one, task="binary").strength
    found = fit_baseline(name, count_words(texts), noisy, one, task="binary", refit=True)
    rows = np.union1d(one.train, one.val)
    plain = make_pipeline(PIPELINES[name](), LogisticRegression(C=chosen, solver="liblinear"))
    plain.fit([texts[i] for i in rows], noisy[rows])
    expected = plain.predict_proba([texts[i] for i in one.test])[:, 1]
    np.testing.assert_allclose(found(one.test).scores, expected, atol=1e-9)
    share = fit_baseline("majority", None, noisy, one, task="binary", refit=True)(one.test).scores
    assert share[0] == pytest.approx(noisy[rows].mean())


def test_majority_is_the_commonest_label_and_its_share():
    labels = np.array([1, 1, 1, 0, 2, 2])
    one = Split(0, np.arange(4), np.array([4]), np.array([5]))
    nothing = count_words([""] * 6)
    two = fit_baseline("majority", nothing, labels, one, task="binary")(one.test)
    assert (two.decisions.tolist(), two.scores.tolist()) == ([1], [0.75])
    many = fit_baseline("majority", nothing, labels, one, task="multiclass", n_classes=3)(one.test)
    assert (many.decisions.tolist(), many.scores.tolist()) == ([1], [[0.25, 0.75, 0.0]])
    mean = fit_baseline("majority", nothing, labels, one, task="regression")(one.test)
    assert mean.decisions.tolist() == [0.75]


@pytest.mark.parametrize("name", ["bow", "tfidf"])
@pytest.mark.parametrize(
    ("texts", "labels"),
    [(["", " ", "", ""], [0, 1, 0, 1]), (["a b", "b c", "c", "d"], [1, 1, 1, 0])],
    ids=["no words", "one class to learn from"],
)
def test_where_words_can_teach_nothing_the_majority_answers(name, texts, labels):
    one = Split(0, np.arange(2 if labels[0] == 1 else 3), np.array([2]), np.array([3]))
    model = fit_baseline(name, count_words(texts), np.array(labels), one, task="binary")
    assert isinstance(model, ConstantBaseline)
    assert model(one.test).decisions.tolist() == [labels[0]]


def test_a_class_without_train_rows_scores_0_and_keeps_its_column():
    texts, labels = corpus("multiclass")
    one = Split(0, np.flatnonzero(labels != 2)[:50], np.arange(200, 220), np.arange(220, 240))
    answer = fit_baseline("bow", count_words(texts), labels, one, task="multiclass", n_classes=3)
    scores = answer(one.test).scores
    assert scores.shape == (20, 3)
    assert (scores[:, 2] == 0).all()


def test_an_unknown_baseline_is_refused_with_a_suggestion():
    with pytest.raises(UnknownName, match="Did you mean 'majority'"):
        fit_baseline("majorty", None, None, None, task="binary")
