"""The control task: random labels by word, held out where the words of the task are."""

import numpy as np
import pytest

from cutaway.core.errors import BadData, Mismatch
from cutaway.data.generate import generate
from cutaway.measure.control import control_task, control_words
from cutaway.measure.splits import Split, SplitPlan, split

WORDS = [f"word{i}" for i in range(30)]


def labels_of(texts, labels, *, seed):
    return control_task(texts, labels, seed=seed).labels


def texts_of(n=400, seed=0):
    """Texts of four words each from thirty."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 4)) + "." for _ in range(n)]


def test_the_label_is_a_function_of_the_control_word_alone():
    texts = texts_of()
    labels = np.random.default_rng(1).integers(0, 2, 400)
    control = labels_of(texts, labels, seed=0)
    by_word = {}
    for word, label in zip(control_words(texts), control, strict=True):
        assert by_word.setdefault(word, label) == label
    assert len(by_word) == len(WORDS)
    assert set(control) == {0, 1}


def test_the_control_says_nothing_about_the_task():
    texts = texts_of(2000)
    labels = np.random.default_rng(1).integers(0, 2, 2000)
    agree = [np.mean(labels_of(texts, labels, seed=s) == labels) for s in range(20)]
    assert np.mean(agree) == pytest.approx(0.5, abs=0.02)


def test_classes_keep_about_their_number_of_rows():
    texts = texts_of(2000)
    labels = np.repeat([0, 1, 2], [1400, 400, 200])
    shares = [np.bincount(labels_of(texts, labels, seed=s), minlength=3) for s in range(5)]
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
    control = labels_of(texts, labels, seed=0)
    assert control.shape == labels.shape
    assert control.dtype == labels.dtype
    assert {str(row) for row in control} <= {str(row) for row in labels}
    assert np.array_equal(labels_of(texts, labels, seed=0), control)
    assert not np.array_equal(labels_of(texts, labels, seed=1), control)


def test_the_control_word_is_the_last_one_that_enough_texts_share():
    texts = ["the film rests!", "the film xyzzy", "a film, the", "plugh", "😀", ""]
    assert control_words(texts, shared=3) == ["film", "film", "the", "plugh", "😀", ""]
    assert control_words(texts, shared=99) == ["rests", "xyzzy", "the", "plugh", "😀", ""]


def test_texts_with_one_control_word_have_no_control():
    with pytest.raises(BadData, match="share the control word 'end'"):
        labels_of(["the end"] * 12, np.arange(12) % 2, seed=0)
    with pytest.raises(Mismatch, match="2 texts and 3 labels"):
        labels_of(["a", "b"], np.arange(3), seed=0)


PARTS = np.repeat(["train", "dev", "test"], [200, 50, 100])


def held_out(rng: np.random.Generator) -> list[str]:
    """Texts of a frame that all parts share, with two words that only their part has."""
    return [
        f"the {part}{rng.integers(12)} was {part}{rng.integers(12, 24)} again" for part in PARTS
    ]


def parts_split() -> Split:
    (one,) = split(np.arange(350) % 2, SplitPlan(protocol="fixed"), task="binary", parts=PARTS)
    return one


def test_words_are_held_out_of_the_control_where_the_task_holds_them_out():
    texts, labels = held_out(np.random.default_rng(0)), np.arange(350) % 2
    kept = control_task(texts, labels, seed=0, parts=PARTS)
    assert kept.seen(parts_split()) == 0.0
    assert all(
        word.startswith(part) for word, part in zip(control_words(texts, PARTS), PARTS, strict=True)
    )
    # Without parts the splits mix the words, and the control has the words that most texts share.
    assert control_task(
        [f"{t} {w}" for t, w in zip(texts, texts_of(350), strict=True)], labels, seed=0
    ).seen(parts_split()) == pytest.approx(1.0)


def test_parts_drawn_at_random_hold_no_words_out():
    texts, labels = texts_of(350), np.arange(350) % 2
    assert control_words(texts, PARTS) == control_words(texts)
    assert control_task(texts, labels, seed=0, parts=PARTS).seen(parts_split()) == 1.0
    rare = [f"{text} rare{row // 2}" for row, text in enumerate(texts)]
    assert control_words(rare, np.random.default_rng(1).permutation(PARTS)) == control_words(rare)


@pytest.mark.parametrize("name", ["sentiment", "tense", "number", "topic"])
def test_generated_sets_hold_their_words_out(name):
    texts = generate(f"gen:{name}?n=200")
    (one,) = split(texts.labels, SplitPlan("fixed"), task=texts.task, parts=texts.parts)
    found = control_task(texts.texts, texts.labels, seed=0, parts=texts.parts)
    assert found.seen(one) == 0.0
