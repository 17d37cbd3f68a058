"""Which rows are learned from, tuned on and tested on."""

import numpy as np
import pytest

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.training.options import TrainingSpec
from cutaway.training.task_split import load_task_split, split_task_rows, task_from_labels


def spec(**options) -> TrainingSpec:
    return TrainingSpec(**{"shots": 4, **options})


def rows(n: int = 60, **options) -> TextSet:
    fields = {"labels": np.arange(n) % 3, "task": "multiclass", "classes": ("a", "b", "c")}
    return TextSet("rows", tuple(f"text {i}" for i in range(n)), **{**fields, **options})


def test_shots_are_counted_per_class_and_no_row_is_in_two_parts() -> None:
    texts = rows()
    train, dev, test = split_task_rows(texts, spec())
    for part in (train, dev):
        assert np.bincount(texts.labels[part]).tolist() == [4, 4, 4]
    assert sorted([*train, *dev, *test]) == list(range(60))


def test_the_data_seed_decides_the_rows_and_the_seed_does_not() -> None:
    texts = rows()
    first = split_task_rows(texts, spec(data_seed=21))
    assert all(map(np.array_equal, first, split_task_rows(texts, spec(data_seed=21, seed=5))))
    assert not np.array_equal(first[0], split_task_rows(texts, spec(data_seed=42))[0])


@pytest.mark.parametrize("held", ["dev", "test"])
def test_shots_come_from_train_and_the_part_held_out_is_the_test(held: str) -> None:
    parts = np.array(["train"] * 40 + [held] * 20)
    train, dev, test = split_task_rows(rows(parts=parts), spec())
    assert max(*train, *dev) < 40
    assert test.tolist() == list(range(40, 60))


def test_without_shots_fixed_parts_are_kept_and_others_cut() -> None:
    parts = np.array(["train"] * 30 + ["dev"] * 10 + ["test"] * 20)
    sizes = [len(part) for part in split_task_rows(rows(parts=parts), spec(shots=None))]
    assert sizes == [30, 10, 20]
    assert [len(part) for part in split_task_rows(rows(), spec(shots=None))] == [42, 6, 12]


def test_a_regression_has_two_halves_to_take_shots_from() -> None:
    values = np.linspace(0, 5, 60)
    train, dev, _ = split_task_rows(rows(labels=values, task="regression", classes=()), spec())
    for part in (train, dev):
        assert (values[part] > 2.5).sum() == 4
        assert len(part) == 8


def test_the_test_rows_can_be_limited() -> None:
    _, _, test = split_task_rows(rows(), spec(test_limit=5))
    assert len(set(test.tolist())) == 5


def test_more_shots_than_a_class_has_are_refused_by_its_name() -> None:
    with pytest.raises(BadData, match=r"'a' has 20 rows, and shots=10 takes 21"):
        split_task_rows(rows(), spec(shots=10))


def read(texts, **options):
    task = options.pop("task", None)
    return load_task_split(spec(**options), task=task, data="it", objects={"it": texts})


def test_rows_without_a_task_get_one_of_their_own() -> None:
    lesson = read(rows())
    assert lesson.task == task_from_labels(rows())
    assert (lesson.task.classes, lesson.task.metric) == (("a", "b", "c"), "accuracy")
    values = rows(labels=np.linspace(0, 1, 60), task="regression", classes=())
    assert task_from_labels(values).metric == "pearson"


def test_the_identity_of_a_lesson_is_its_task_and_its_rows() -> None:
    assert read(rows()).digest == read(rows()).digest
    assert read(rows()).digest != read(rows(57)).digest


def test_rows_of_another_task_are_refused_with_both_lists_of_classes() -> None:
    with pytest.raises(Mismatch, match=r"classes a, b, c, task 'sst2' has negative, positive"):
        read(rows(), task="sst2")


def test_a_generated_set_can_be_a_tasks_rows() -> None:
    lesson = load_task_split(spec(), task="sst2", data="gen:sentiment?n=80")
    assert lesson.task.name == "sst2"
    assert set(lesson.texts.parts[lesson.train]) == {"train"}


def test_a_folder_with_the_tasks_name_has_its_rows(tmp_path, monkeypatch) -> None:
    lines = [f"text {i}\t{i % 2}" for i in range(40)]
    (tmp_path / "sst2").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / "sst2" / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]))
    monkeypatch.chdir(tmp_path)
    assert len(load_task_split(spec(), task="sst2", data="sst2").texts) == 120


def test_any_column_can_be_the_label_of_a_task(tmp_path) -> None:
    lines = [f"a film {i},{'good' if i % 2 else 'bad'},{i % 2}" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["sentence,class,kind", *lines]))
    data = str(tmp_path / "mine.csv")
    with pytest.raises(BadData, match="no label column of the task 'sst2'"):
        load_task_split(spec(), task="sst2", data=data)
    made = load_task_split(spec(label_column="kind"), task="sst2", data=data)
    assert made.texts.labels.tolist() == [i % 2 for i in range(40)]


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(BadSpec, match="both missing"):
        load_task_split(spec(), task=None, data=None)
    with pytest.raises(BadData, match="labels of kind 'text'"):
        read(TextSet("plain", ("a", "b")))
    with pytest.raises(BadSpec, match="text_column is 'x', but 'mine' defines its own columns"):
        read(TextSet("mine", ("a", "b")), text_column="x")
