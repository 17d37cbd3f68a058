"""Rows of text stay with their labels, and their digest is their identity."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet

FULL = TextSet(
    name="reviews",
    texts=("good", "bad", "fine", "poor"),
    labels=np.array([1, 0, 1, 0]),
    task="binary",
    classes=("negative", "positive"),
    pairs=("a", "b", "c", "d"),
    parts=np.array(["train", "test", "train", "dev"]),
)


@given(rows=st.lists(st.integers(0, 3), max_size=6))
def test_taken_rows_keep_their_columns_together(rows):
    taken = FULL.take(rows)
    assert len(taken) == len(rows)
    for i, row in enumerate(rows):
        assert taken.texts[i] == FULL.texts[row]
        assert taken.labels[i] == FULL.labels[row]
        assert taken.pairs[i] == FULL.pairs[row]
        assert taken.parts[i] == FULL.parts[row]


def test_plain_text_can_be_taken_too():
    plain = TextSet("prose", ("a", "b", "c")).take(np.array([2, 0]))
    assert plain.texts == ("c", "a")
    assert plain.labels is plain.pairs is plain.parts is None


def test_a_part_is_its_rows_in_order():
    assert FULL.part("train").texts == ("good", "fine")
    assert FULL.rows_of("dev").tolist() == [3]


@pytest.mark.parametrize(
    ("source", "words"),
    [(FULL, "no part 'valid'. It has: dev, test, train"), (TextSet("x", ("a",)), "no parts")],
)
def test_a_part_that_is_not_there_is_refused_with_those_that_are(source, words):
    with pytest.raises(BadData, match=words):
        source.part("valid")


@pytest.mark.parametrize("column", ["labels", "pairs", "parts"])
def test_a_column_of_another_length_is_refused(column):
    short = getattr(FULL, column)[:3]
    with pytest.raises(BadData, match=f"'reviews' has 4 texts but 3 {column}"):
        replace(FULL, **{column: short})


def test_a_text_set_is_frozen():
    with pytest.raises(FrozenInstanceError):
        FULL.name = "other"


CHANGES = {
    "texts": ("good", "bad", "fine", "Poor"),
    "labels": np.array([1, 0, 1, 1]),
    "task": "multiclass",
    "classes": ("negative", "POSITIVE"),
    "pairs": None,
    "parts": None,
}


@pytest.mark.parametrize("column", CHANGES)
def test_the_digest_changes_with_each_column(column):
    assert replace(FULL, **{column: CHANGES[column]}).digest != FULL.digest


@pytest.mark.parametrize("column", ["name", "notes", "meta"])
def test_the_digest_is_of_the_rows_not_of_what_is_said_about_them(column):
    said = {"name": "other", "notes": ("read",), "meta": {"a": 1}}
    assert replace(FULL, **{column: said[column]}).digest == FULL.digest


def test_the_digest_depends_on_order_and_not_on_the_width_of_numbers():
    assert FULL.take([1, 0, 2, 3]).digest != FULL.digest
    assert replace(FULL, labels=FULL.labels.astype(np.int8)).digest == FULL.digest
    assert FULL.take(range(4)).digest == FULL.digest


@pytest.mark.parametrize(
    "labels", [np.eye(4, 3, dtype=int), np.linspace(0, 1, 4), None], ids=["multi", "floats", "none"]
)
def test_labels_of_every_shape_have_a_digest(labels):
    assert len(replace(FULL, labels=labels).digest) == 64
