"""`graft eval` uses only rows that were held out in training."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.methods.graft import api as graft
from cutaway.methods.graft.held_out import held_out_texts, skill_training_data, training_data_of
from cutaway.methods.graft.skill import load_skill
from cutaway.training.options import TrainingSpec
from cutaway.training.task_split import split_task_rows
from tests.methods.graft.toy import ToyGraft, value

ALL = 240


def measured(toy: ToyGraft, skill: str, data: str, **more):
    return graft.eval(
        skill=[skill], base=toy.pair("bert")[0], data=[data], runs=toy.runs, text="none",
        quiet=True, **more,
    )  # fmt: skip


def with_data(skill: str, path, data) -> str:
    """The skill's file with another note of what it was taught on."""
    found = load_skill(skill)
    task = {**found.meta["task"], "data": data}
    replace(found, meta={**found.meta, "task": task}).save(path)
    return str(path)


def a_set(n: int = 100, **options) -> TextSet:
    texts = tuple(f"text {i}" for i in range(n))
    return TextSet("rows", texts, np.arange(n) % 2, "binary", ("a", "b"), **options)


def note(texts: TextSet, seed: int = 13, shots: int | None = None) -> dict:
    return {"digest": texts.digest, "data_seed": seed, "shots": shots}


def test_on_its_training_set_a_skill_has_the_test_scores_of_learning(toy, skill) -> None:
    result = measured(toy, skill, toy.data, tuned=toy.pair("bert")[1])
    told = load_skill(skill).meta["metrics"]
    for kind in ("base", "tuned", "learned", "removed"):
        assert value(result.rows, kind, "accuracy") == [told[kind]["accuracy"]["value"]]
    assert any("48 of its 240 rows are evaluated" in line for line in result.summary["notes"])


def test_another_set_is_evaluated_on_all_rows_without_a_note(toy, skill) -> None:
    result = measured(toy, skill, toy.other)
    assert result.record.data["rows"] == 60
    assert result.summary["notes"] == []


def test_a_file_without_its_split_is_evaluated_on_all_rows_with_a_warning(
    toy, skill, tmp_path
) -> None:
    about = load_skill(skill).meta["task"]["data"]
    old = {name: about[name] for name in ("name", "rows", "digest")}
    path = with_data(skill, tmp_path / "old.safetensors", old)
    result = measured(toy, path, toy.data)
    assert result.record.data["rows"] == ALL
    assert any("that include training rows" in line for line in result.summary["verdict"])
    assert measured(toy, path, toy.other).summary["notes"] == []
    older = with_data(skill, tmp_path / "older.safetensors", None)
    found = measured(toy, older, toy.other)
    assert found.record.data["rows"] == 60
    assert any("doesn't say what it was trained on" in line for line in found.summary["verdict"])


def test_a_checkpoint_and_a_stacked_skill_name_their_training_data(toy, skill, tmp_path) -> None:
    own = load_skill(skill).meta["task"]["data"]
    assert (own["rows"], own["shots"], own["data_seed"]) == (ALL, None, 13)
    assert training_data_of([], toy.pair("bert")[1]) == [own]
    both = str(tmp_path / "both.safetensors")
    graft.stack(skill=[skill, skill], rule="mean", out=both)
    assert skill_training_data(load_skill(both)) == [own, own]


@pytest.mark.parametrize("shots", [None, 8])
def test_no_row_that_any_of_them_learned_from_or_tuned_on_is_measured(shots) -> None:
    texts = a_set()
    found, _ = held_out_texts(texts, (), [note(texts, 13, shots), note(texts, 21, shots)])
    for seed in (13, 21):
        train, dev, _ = split_task_rows(texts, TrainingSpec(shots=shots, data_seed=seed))
        used = {texts.texts[i] for i in (*train, *dev)}
        assert found.texts and not used & set(found.texts)


def test_a_set_is_known_by_its_rows_whatever_order_its_classes_come_in() -> None:
    texts = a_set()
    turned = replace(texts, labels=1 - texts.labels, classes=("b", "a"))
    plain, _ = held_out_texts(texts, (), [note(texts)])
    again, _ = held_out_texts(turned, [texts], [note(texts)])
    assert len(plain) == 20
    assert again.texts == plain.texts


def test_splits_without_a_common_test_row_are_refused() -> None:
    texts = a_set(10)
    with pytest.raises(BadData, match="one by one"):
        held_out_texts(texts, (), [note(texts, seed) for seed in range(30)])


@pytest.mark.parametrize("part", ["test", "dev"])
def test_parts_of_its_own_are_kept(part) -> None:
    texts = a_set(parts=np.array(["train"] * 60 + [part] * 40))
    for taught in ([], [{}], [note(texts)], [{"digest": texts.digest}]):
        found, said = held_out_texts(texts, (), taught)
        assert (found.texts, said) == (texts.texts[60:], "")
