import numpy as np
import polars
import pytest

from cutaway.core.errors import BadData
from cutaway.data.json_layouts import table_from_json
from cutaway.data.load import load_text_set

SENTENCES, LABELS = [f"sentence {i}" for i in range(12)], [i % 2 for i in range(12)]
FACTS = {"name": "Toy", "task": "Classification", "size": 12, "labels": {"0": "No", "1": "Yes"}}
NEW = {"data": {"sentences": SENTENCES, "labels": LABELS}, **FACTS}
# The order of its keys is the order of strings: 0, 1, 10, 11, 2, ...
OLD = {
    "data": {
        "sentences": {str(i): SENTENCES[i] for i in sorted(range(12), key=str)},
        "labels": {str(i): LABELS[i] for i in sorted(range(12), key=str)},
    },
    **FACTS,
}


def test_both_layouts_of_the_probing_reference_give_the_same_rows() -> None:
    new, old = load_text_set(NEW), load_text_set(OLD)
    assert new.digest == old.digest
    assert old.texts == tuple(SENTENCES)
    assert old.labels.tolist() == LABELS
    assert old.classes == ("No", "Yes")


def test_a_size_that_is_not_true_is_noted() -> None:
    assert "claims 99 rows and has 12" in load_text_set({**OLD, "size": 99}).notes[0]
    assert not any("claims" in note for note in load_text_set(OLD).notes)


def test_the_task_that_the_file_claims_is_believed_and_can_be_overruled() -> None:
    graded = {"data": {"sentences": SENTENCES, "labels": LABELS}, "task": "Regression"}
    assert load_text_set(graded).task == "regression"
    assert load_text_set(graded, as_task="classification").task == "binary"


def test_rounded_grades_take_the_names_of_the_legend() -> None:
    grades = [i / 11 for i in range(12)]
    file = {**FACTS, "data": {"sentences": SENTENCES, "labels": grades}, "task": "Regression"}
    assert load_text_set(file).task == "regression"
    assert load_text_set(file, as_task="classification").classes == ("No", "Yes")


@pytest.mark.parametrize(
    "value",
    [
        [{"text": "a", "label": 1}, {"text": "b", "label": 0}],
        {"data": [{"text": "a", "label": 1}, {"text": "b", "label": 0}]},
        {"text": ["a", "b"], "label": [1, 0]},
        {"text": {"1": "b", "0": "a"}, "label": {"0": 1, "1": 0}},
        {"text": ("a", "b"), "label": np.array([1, 0])},
        {"text": polars.Series(["a", "b"]), "label": np.array([1, 0])},
    ],
)
def test_all_layouts_mean_the_same(value) -> None:
    assert table_from_json("x", value).columns == {"text": ["a", "b"], "label": [1, 0]}


def test_strings_alone_are_texts() -> None:
    assert load_text_set(["one", "two"]).texts == ("one", "two")


def test_a_table_per_part_gives_parts() -> None:
    rows = {"train": [{"text": "a", "label": 0}], "validation": [{"text": "b", "label": 1}]}
    assert load_text_set(rows).parts.tolist() == ["train", "dev"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "not rows"),
        ([{"text": "a"}, 7], "row 2: 7 is not an object"),
        ({"text": ["a", "b"], "label": [1]}, "different lengths.*'text' 2, 'label' 1"),
        ({"text": {"first": "a"}}, "keyed by 'first'"),
        ({"text": {"--5": "a"}}, "keyed by '--5'"),
        ({"text": {"1": "a", "²": "b"}}, "keyed by '²'"),
        ({"text": {float("inf"): "a"}}, "keyed by inf"),
        ({"text": "one string"}, "not a column"),
        ({"experiment_0": {}, "experiment_1": {}}, "cutaway import"),
    ],
)
def test_other_values_are_refused_with_a_reason(value, message: str) -> None:
    with pytest.raises(BadData, match=message):
        table_from_json("x.json", value)
