import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.labels import (
    LABEL_TASKS,
    MAX_CLASSES,
    cast_labels,
    check_as_task,
    check_learnable,
    encode_label_column,
)
from cutaway.data.table import Table


def made(values, **options):
    return encode_label_column(Table("t", {"label": list(values)}), "label", **options)


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        ([0, 1, 1], "binary", ("0", "1")),
        (["1", "0", "1"], "binary", ("0", "1")),
        ([1.0, 0.0, 1.0], "binary", ("0", "1")),
        ([True, False], "binary", ("False", "True")),
        (["True", "False"], "binary", ("False", "True")),
        (["pos", "neg ", " pos"], "binary", ("neg", "pos")),
        ([-1, 1, 10, 2], "multiclass", ("-1", "1", "2", "10")),
        (["0", "1", "unknown"], "multiclass", ("0", "1", "unknown")),
        ([7, 7], "binary", ("7",)),
        (["3.8", "5.000"], "regression", ()),
        ([0.5, 1], "regression", ()),
        ([["a"], ["b", "a"], []], "multilabel", ("a", "b")),
        ([[0, 1], [1, 1]], "multilabel", ("0", "1")),
        ([[3], [10, 3]], "multilabel", ("3", "10")),
    ],
)
def test_labels_make_the_task_they_look_like(values, task: str, classes) -> None:
    labels = made(values)
    assert (labels.task, labels.classes) == (task, classes)


def test_class_numbers_point_into_the_classes() -> None:
    labels = made(["b", "a", "c", "b"])
    assert [labels.classes[i] for i in labels.values] == ["b", "a", "c", "b"]


def test_multilabel_rows_mark_their_classes() -> None:
    assert made([["a"], ["b", "a"], []]).values.tolist() == [[1, 0], [1, 1], [0, 0]]


@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1))
def test_no_label_is_lost_or_swapped(values: list[str]) -> None:
    labels = made(values)
    assert [labels.classes[i] for i in labels.values] == values


@pytest.mark.parametrize(
    "values", [range(MAX_CLASSES + 1), [f"c{i}" for i in range(MAX_CLASSES + 1)]]
)
def test_more_values_than_classes_usually_have_are_refused(values) -> None:
    with pytest.raises(BadData, match=r"51 different values.*as_task='classification'"):
        made(values)
    assert len(made(values, as_task="classification").classes) == MAX_CLASSES + 1
    assert len(made(list(values)[:-1]).classes) == MAX_CLASSES


def test_numbers_among_many_texts_are_pointed_at() -> None:
    with pytest.raises(BadData, match=r"60 of 120 labels are not numbers.*row 61 of t"):
        made([*[i / 10 for i in range(60)], *[f"text {i}" for i in range(60)]])


@pytest.mark.parametrize("gone", [None, float("nan"), "", "  ", "NaN"])
def test_a_missing_label_is_refused_with_its_row(gone) -> None:
    with pytest.raises(BadData, match=r"1 of 3 labels in 'label' are missing: row 2 of t"):
        made([1, gone, 0])


@pytest.mark.parametrize("value", [float("inf"), 10**400])
def test_labels_must_be_finite(value) -> None:
    with pytest.raises(BadData, match="not finite"):
        made([0.5, value])


@pytest.mark.parametrize(
    ("values", "as_task", "task", "expected"),
    [
        ([0.2, 0.5, 0.8], "classification", "binary", [0, 0, 1]),
        ([0.2, 2.6, 0.8], "classification", "multiclass", [0, 2, 1]),
        ([0, 1, 1], "multiclass", "multiclass", [0, 1, 1]),
        ([0, 1, 1], "regression", "regression", [0.0, 1.0, 1.0]),
        (["3", "5"], "regression", "regression", [3.0, 5.0]),
        ([True, False], "regression", "regression", [1.0, 0.0]),
        (["a,b", "b"], "multilabel", "multilabel", [[1, 1], [0, 1]]),
    ],
)
def test_the_task_asked_for_wins(values, as_task, task, expected) -> None:
    labels = made(values, as_task=as_task)
    assert (labels.task, labels.values.tolist()) == (task, expected)


@pytest.mark.parametrize(
    ("values", "as_task", "message"),
    [
        (["a", "b"], "regression", "2 labels in 'label' are not numbers"),
        ([0, 1, 2], "binary", "3 classes"),
        ([["a"], ["b"]], "regression", "holds lists"),
        ([["a"], "b"], None, "expected a flat list"),
        ([[["a"]], ["b"]], None, "expected a flat list"),
    ],
)
def test_labels_that_cannot_be_what_is_asked_are_refused(values, as_task, message) -> None:
    with pytest.raises(BadData, match=message):
        made(values, as_task=as_task)


def test_an_unknown_task_gets_a_hint() -> None:
    with pytest.raises(BadSpec, match="Did you mean 'classification'"):
        check_as_task("clasification")
    for name in (None, *LABEL_TASKS):
        check_as_task(name)


def labelled(values, task="binary", classes=("no", "yes")) -> TextSet:
    labels = None if values is None else np.asarray(values)
    texts = tuple("t" for _ in range(len(values or [0])))
    return TextSet("toy", texts, labels, task, classes)


@pytest.mark.parametrize(
    ("textset", "message"),
    [
        (labelled(None, "text", ()), "no labels.*--label-column"),
        (labelled([1, 1, 1]), "All 3 rows of 'toy' have the label 'yes'"),
        (labelled([0.5, 0.5], "regression", ()), "have the label 0.5"),
        (labelled([0.5, np.nan], "regression", ()), "1 labels that are not numbers.*row 2"),
        (labelled([[1, 0], [1, 0]], "multilabel"), "at least two different"),
    ],
)
def test_labels_that_teach_nothing_are_refused(textset: TextSet, message: str) -> None:
    with pytest.raises(BadData, match=message):
        check_learnable(textset)


def test_labels_that_differ_are_let_through() -> None:
    good = labelled([0, 1])
    assert check_learnable(good) is good


def test_a_finished_set_can_be_read_as_another_task() -> None:
    graded = labelled([0.2, 0.9], "regression", ())
    assert cast_labels(graded, "classification").labels.tolist() == [0, 1]
    assert cast_labels(graded, "text").labels is None
    assert cast_labels(graded, None) is graded
    named = cast_labels(labelled([1, 0]), "classification")
    assert (named.classes, named.labels.tolist()) == (("no", "yes"), [1, 0])
    with pytest.raises(BadData, match="no labels to read"):
        cast_labels(labelled(None, "text", ()), "binary")
