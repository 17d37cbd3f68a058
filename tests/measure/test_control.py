"""The control task: labels that only memory can know."""

import numpy as np
import pytest

from cutaway.core.errors import BadData, Mismatch
from cutaway.measure.control import control_labels, control_words, selectivity, shuffle_labels

WORDS = [f"word{i}" for i in range(30)]


def texts_of(n=400, seed=0):
    """Texts of four words each from thirty."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 4)) + "." for _ in range(n)]


def test_the_label_is_a_function_of_the_control_word_alone():
    texts = texts_of()
    labels = np.random.default_rng(1).integers(0, 2, 400)
    control = control_labels(texts, labels, seed=0)
    by_word = {}
    for word, label in zip(control_words(texts), control, strict=True):
        assert by_word.setdefault(word, label) == label
    assert len(by_word) == len(WORDS)
    assert set(control) == {0, 1}


def test_the_control_says_nothing_about_the_task():
    texts = texts_of(2000)
    labels = np.random.default_rng(1).integers(0, 2, 2000)
    agree = [np.mean(control_labels(texts, labels, seed=s) == labels) for s in range(20)]
    assert np.mean(agree) == pytest.approx(0.5, abs=0.02)


def test_classes_keep_about_their_number_of_rows():
    texts = texts_of(2000)
    labels = np.repeat([0, 1, 2], [1400, 400, 200])
    shares = [np.bincount(control_labels(texts, labels, seed=s), minlength=3) for s in range(5)]
    assert np.abs(np.array(shares) - [1400, 400, 200]).max() < 100


@pytest.mark.parametrize(
    "labels",
    [
        np.linspace(0, 1, 400),
        np.random.default_rng(0).integers(0, 2, (400, 3)),
        np.arange(400) % 5,
        np.arange(400) % 2 == 0,
    ],
    ids=["regression", "multilabel", "multiclass", "bool"],
)
def test_control_labels_are_labels_of_the_task_and_seeded(labels):
    texts = texts_of()
    control = control_labels(texts, labels, seed=0)
    assert control.shape == labels.shape
    assert control.dtype == labels.dtype
    assert {str(row) for row in control} <= {str(row) for row in labels}
    assert np.array_equal(control_labels(texts, labels, seed=0), control)
    assert not np.array_equal(control_labels(texts, labels, seed=1), control)


def test_the_control_word_is_the_last_one_that_enough_texts_share():
    texts = ["the film rests!", "the film xyzzy", "a film, the", "plugh", "😀", ""]
    assert control_words(texts, shared=3) == ["film", "film", "the", "plugh", "😀", ""]
    assert control_words(texts, shared=99) == ["rests", "xyzzy", "the", "plugh", "😀", ""]


def test_texts_with_one_control_word_have_no_control():
    with pytest.raises(BadData, match="share the control word 'end'"):
        control_labels(["the end"] * 12, np.arange(12) % 2, seed=0)
    with pytest.raises(Mismatch, match="2 texts and 3 labels"):
        control_labels(["a", "b"], np.arange(3), seed=0)


def test_shuffled_labels_are_the_same_labels_on_other_rows():
    labels = np.arange(100)
    mixed = shuffle_labels(labels, np.random.default_rng(0))
    assert sorted(mixed) == labels.tolist()
    assert (mixed != labels).mean() > 0.9


def test_selectivity_is_what_memory_does_not_explain():
    assert selectivity(0.9, 0.65) == pytest.approx(0.25)
