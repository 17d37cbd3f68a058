"""Tasks from task files and options: classes, prompts, words, splits."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks, task_splits


def asked(task: str, data, **options) -> NextwordTask:
    spec = NextwordSpec(model=["m"], task=[task], data=["d"], **options)
    return nextword_tasks(spec, {"d": data})[0]


def rows(classes: tuple[str, ...], n: int = 20) -> TextSet:
    """Row i is of the class number i mod classes; its text says which."""
    labels = np.arange(n) % len(classes)
    kind = "binary" if len(classes) == 2 else "multiclass"
    return TextSet("rows", tuple(classes[i] for i in labels), labels, kind, classes)


def test_classes_meet_a_tasks_words_by_name_in_whatever_order_they_come() -> None:
    task = asked("sst2", rows(("negative", "positive")))
    turned = asked("sst2", rows(("Positive", "Negative")))
    assert turned.texts.classes == task.texts.classes == ("negative", "positive")
    assert turned.answers == task.answers
    for made in (task, turned):
        said = [made.texts.classes[i] for i in made.labels]
        assert said == [text.lower() for text in made.texts.texts]


def test_the_main_metric_follows_the_classes_or_the_option() -> None:
    texts = rows(("negative", "positive"), 40)
    assert asked("sst2", texts).metric == "accuracy"
    unequal = texts.take(np.flatnonzero((texts.labels == 0) | (np.arange(40) % 8 == 1)))
    assert asked("sst2", unequal).metric == "balanced_accuracy"
    assert asked("sst2", unequal, metric="auc").metric == "auc"
    with pytest.raises(BadSpec, match=r"'r2' doesn't fit 'rows', a binary set.*balanced_accuracy"):
        asked("sst2", unequal, metric="r2")


def rare(n: int, few: int) -> TextSet:
    labels = (np.arange(n) < few).astype(int)
    return TextSet("rows", tuple(map(str, range(n))), labels, "binary", ("negative", "positive"))


def test_a_limit_keeps_the_rare_class_or_refuses_by_name() -> None:
    spec = NextwordSpec(model=["m"], task=["sst2"], data=["d"], limit=40)
    task = nextword_tasks(spec, {"d": rare(900, 20)})[0]
    assert np.bincount(task.labels).tolist() == [33, 7]
    assert len(task_splits(task, spec)) == 5
    with pytest.raises(BadData, match=r"at least 5 training rows of each.*'positive': 2"):
        few = nextword_tasks(spec, {"d": rare(900, 3)})[0]
        task_splits(few, spec)


@pytest.mark.parametrize(
    ("task", "classes", "first"),
    [("sst2", ("pos", "neg"), 1), ("sst2", ("0", "1"), 0), ("qnli", ("0", "1"), 1)],
)
def test_spellings_of_a_tasks_file_are_its_classes_and_numbers_mean_what_it_says(
    task, classes, first
) -> None:
    assert asked(task, rows(classes)).labels[0] == first


def test_columns_given_with_a_task_are_read_as_the_task_reads_a_file() -> None:
    data = {"text": [f"text {i}" for i in range(20)], "label": ["pos", "neg"] * 10}
    made = asked("sst2", data)
    assert made.texts.classes == ("negative", "positive")
    assert made.labels.tolist() == [1, 0] * 10


def test_other_classes_are_refused_with_both_lists_however_many_they_are() -> None:
    both = "business, cooking, science, sport, task 'ag_news' has World, Sports, Business, Sci/Tech"
    with pytest.raises(Mismatch, match=both):
        nextword_tasks(NextwordSpec(model=["m"], task=["ag_news"], data=["gen:topic?n=80"]), {})
    with pytest.raises(Mismatch, match="classes no, yes, task 'sst2' has negative, positive"):
        asked("sst2", rows(("no", "yes")))


def test_given_class_words_stand_in_the_order_of_the_sets_own_classes() -> None:
    made = asked("sst2", rows(("positive", "negative")), class_words=["good", "bad"])
    assert made.texts.classes == ("positive", "negative")
    assert made.answers == (("good", "bad"),)


def labelled(n: int = 40, parts: list[str] | None = None) -> TextSet:
    labels = np.arange(n) % 2
    names = None if parts is None else np.array(parts)
    texts = tuple(f"text {i}" for i in range(n))
    return TextSet("set", texts, labels, "binary", ("no", "yes"), parts=names)


def task_of(data: TextSet, **options) -> tuple[NextwordTask, NextwordSpec]:
    spec = NextwordSpec(model=["m"], data=["d"], **options)
    return nextword_tasks(spec, {"d": data})[0], spec


def test_data_without_parts_have_random_splits_with_all_rows() -> None:
    task, spec = task_of(labelled(), repeats=3, test_share=0.25)
    splits = task_splits(task, spec)
    assert [s.repeat for s in splits] == [0, 1, 2]
    for split in splits:
        assert len(split.test) == 10 and task.labels[split.test].mean() == 0.5
        assert sorted([*split.train, *split.test]) == list(range(40))
        assert set(split.val) <= set(split.train) and len(split.val) == 6
    assert set(splits[0].test) != set(splits[1].test)


def test_splits_depend_on_the_seed_only() -> None:
    task, spec = task_of(labelled(), repeats=1)
    other = spec.model_copy(update={"seed": 1})
    first, again, seeded = (task_splits(task, s)[0] for s in (spec, spec, other))
    assert first.test.tolist() == again.test.tolist() != seeded.test.tolist()


@pytest.mark.parametrize(("last", "tested"), [("test", "test"), ("dev", "dev")])
def test_fixed_parts_are_used_and_other_rows_dropped(last: str, tested: str) -> None:
    parts = ["train"] * 20 + ["dev"] * 10 + [last] * 10
    task, spec = task_of(labelled(parts=parts))
    (split,) = task_splits(task, spec)
    assert set(task.texts.parts[split.test]) == {tested}
    assert set(task.texts.parts) == {"train", tested}


def test_a_test_part_of_one_class_is_refused_by_its_label() -> None:
    parts = ["train"] * 30 + ["test"] * 10
    task, spec = task_of(labelled(parts=parts))
    task.labels[30:] = 1
    with pytest.raises(BadData, match=r"All 10 rows of the part 'test' have the label 'yes'"):
        task_splits(task, spec)


def test_repeats_replace_fixed_parts() -> None:
    parts = ["train"] * 30 + ["test"] * 10
    task, spec = task_of(labelled(parts=parts), repeats=2)
    assert task.protocol.kind == "repeats" and len(task_splits(task, spec)) == 2


def test_k_folds_test_every_row_once() -> None:
    task, spec = task_of(labelled())
    protocol = task.protocol.model_copy(update={"kind": "kfold", "folds": 4})
    splits = task_splits(replace(task, protocol=protocol), spec)
    assert sorted(np.concatenate([s.test for s in splits]).tolist()) == list(range(40))
    assert all(not set(s.train) & set(s.test) for s in splits)


PROMPTS = {
    "both by default": ({"prompt_text": " so"}, ("", " so")),
    "only the prompt": ({"prompt_text": " so", "prompt": True}, (" so",)),
    "no prompt": ({"prompt_text": " so", "prompt": False}, ("",)),
    "none to append": ({}, ("",)),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_prompts_follow_the_options(case: str) -> None:
    options, expected = PROMPTS[case]
    assert task_of(labelled(), **options)[0].prompts == expected


def test_a_prompt_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadSpec, match="'set', without a task, has no prompt: give one with"):
        task_of(labelled(), prompt=True)


def test_the_identity_changes_with_prompts_words_and_rows() -> None:
    made = [
        task_of(labelled())[0],
        task_of(labelled(38))[0],
        task_of(labelled(), prompt_text=" so")[0],
        task_of(labelled(), class_words=["a", "b"])[0],
        task_of(labelled(), subset_words=["a", "b"])[0],
        task_of(labelled(), repeats=2)[0],
    ]
    assert len({digest_json(task.identity) for task in made}) == len(made)


def test_zero_shot_prefers_the_users_words_and_needs_one_per_class() -> None:
    assert task_of(labelled(), class_words=["a", "b"])[0].answers == (("a", "b"),)
    assert task_of(labelled(), class_words=["a", "b", "c"])[0].answers == ()


def test_two_data_sets_of_one_name_get_different_names() -> None:
    spec = NextwordSpec(model=["m"], data=["a", "b"])
    tasks = nextword_tasks(spec, {"a": labelled(), "b": labelled(38)})
    assert [task.name for task in tasks] == ["set", "set (2)"]
    with pytest.raises(BadSpec, match="--data has 'set' twice"):
        nextword_tasks(spec, {"a": labelled(), "b": labelled()})


def test_any_column_can_be_the_label_of_a_task() -> None:
    columns = {"sentence": [f"film {i}" for i in range(20)], "class": [i % 2 for i in range(20)]}
    assert asked("sst2", columns, label_column="class").labels.tolist() == columns["class"]
    with pytest.raises(BadData, match=r"no label column of the task 'sst2'.*--label-column"):
        asked("sst2", columns)
