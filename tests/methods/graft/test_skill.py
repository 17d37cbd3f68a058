"""What a skill file is worth later: asked by class name, with its head, on the right model."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.methods.graft import api as graft
from cutaway.methods.graft import tuned_head as heads
from cutaway.methods.graft.learn import open_learning
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.models.load import open_model
from cutaway.store.artefacts import load_artefact
from cutaway.training.task_model import HEAD_FILE
from cutaway.training.task_split import align_classes_by_name
from tests.methods.graft.test_learn import Room, value


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Room:
    return Room(tmp_path_factory.mktemp("skills"))


@pytest.fixture(scope="module")
def skill(room) -> str:
    """A skill that answers with neg and pos."""
    return room.skill()


def spelled(room: Room, names: dict[str, str]) -> str:
    """The other set with its labels written in these words."""
    head, *lines = Path(room.other).read_text().splitlines()
    rows = [line.rsplit("\t", 1) for line in lines]
    path = room.folder / f"{'-'.join(names.values())}.tsv"
    path.write_text("\n".join([head, *(f"{text}\t{names[label]}" for text, label in rows)]) + "\n")
    return str(path)


def accuracy(room: Room, skill: str, data: str, **more) -> dict[str, float]:
    found = graft.eval(
        skill=[skill], base=room.pair("bert")[0], data=[data], runs=room.runs, text="none",
        quiet=True, **more,
    ).rows  # fmt: skip
    return {kind: value(found, kind, "accuracy")[0] for kind in ("base", "learned")}


@pytest.mark.parametrize("names", [("neg", "pos"), ("NEG", "Pos")])
def test_classes_of_the_same_names_are_matched_by_name(room, skill, names) -> None:
    numbered = accuracy(room, skill, room.other)
    assert numbered["learned"] > 0.6
    assert accuracy(room, skill, spelled(room, dict(zip("01", names, strict=True)))) == numbered
    # 'pos' for what was 0: every answer that was right is wrong.
    swapped = accuracy(room, skill, spelled(room, dict(zip("10", names, strict=True))))
    assert swapped == pytest.approx({kind: 1 - share for kind, share in numbered.items()})


@pytest.mark.parametrize("names", [("sad", "happy"), ("1", "2")])
def test_classes_of_other_names_are_refused_with_both_lists(room, skill, names) -> None:
    data = spelled(room, dict(zip("01", names, strict=True)))
    with pytest.raises(Mismatch, match=f"{', '.join(sorted(names))}.*neg, pos.*0 to 1.*--task"):
        accuracy(room, skill, data)


def test_rows_follow_their_class_into_another_order() -> None:
    texts = TextSet("x", ("a", "b", "c"), np.array([0, 1, 1]), "binary", ("Yes", "no"))
    found = align_classes_by_name(texts, ("no", "yes"))
    assert (found.labels.tolist(), found.classes) == ([1, 0, 0], ("no", "yes"))
    assert align_classes_by_name(texts, ("yes", "maybe")) is None
    assert align_classes_by_name(texts, ("no", "yes", "NO")) is None


@pytest.mark.parametrize(("family", "at"), [("bert", "auto"), ("llama", "auto"), ("bert", "first")])
def test_a_skill_with_a_head_attached_answers_as_it_was_measured(
    room, tmp_path, family, at
) -> None:
    base, _ = room.pair(family)
    tuned, out = str(tmp_path / "tuned"), str(tmp_path / "with")
    shared = {"task": room.task, "data": room.data, "mode": "head", "at": at, "runs": room.runs}
    graft.finetune(model=base, steps=10, lr=0.05, every=10, out=tuned, quiet=True, **shared)
    learn = {"tuned": tuned, "mode": "head", "at": at, "text": "none", "baselines": "none"}
    path = room.learn(family, **learn, steps=2, sparsity=0.2).path / "skill.safetensors"
    skill = load_skill(path)
    spec = LearnSpec(base=base, **shared, **{k: learn[k] for k in ("tuned", "text", "baselines")})
    work = open_learning(spec, Console(quiet=True))
    pupil, rows = work.pair.pupil, range(12)
    assert set(skill.head) == set(heads.head_names(pupil))
    skill.attach(pupil.lm)
    with torch.inference_mode():
        expected = pupil.logits(rows)
    told = graft.attach(skill=str(path), base=base, out=out)
    assert "head" in " ".join(told.verdict)
    if at != "auto":
        kept = load_artefact(Path(out) / HEAD_FILE)
        assert kept.meta["at"] == at
        again, _ = heads.load_tuned_with_head(pupil, out, at, check=False, offline=True)
        pupil.lm.module.load_state_dict(open_model(out).module.state_dict())
        assert all(torch.equal(pupil.params()[n], again[n]) for n in pupil.params())
    else:
        plain = AutoModelForSequenceClassification.from_pretrained(out).eval()
        assert plain.config.id2label == {0: "neg", 1: "pos"}
        pupil.module.load_state_dict(plain.state_dict())
    with torch.inference_mode():
        assert torch.equal(pupil.logits(rows), expected)


def test_a_skill_with_a_head_says_what_eval_can_do_and_that_works(room, tmp_path) -> None:
    base, _ = room.pair("bert")
    tuned = str(tmp_path / "tuned")
    shared = {"task": room.task, "data": room.data, "mode": "head", "runs": room.runs}
    graft.finetune(model=base, steps=4, lr=0.05, every=4, out=tuned, quiet=True, **shared)
    learned = room.learn(tuned=tuned, mode="head", text="none", baselines="none", steps=1)
    path = str(learned.path / "skill.safetensors")
    with pytest.raises(BadSpec, match=r"learned with a head.*`graft attach`.*--task"):
        accuracy(room, path, room.other)
    assert set(accuracy(room, path, room.other, task=[room.task])) == {"base", "learned"}


def test_another_precision_is_named_and_the_remedy_works(room, skill) -> None:
    base = room.pair("bert")[0]
    with pytest.raises(Mismatch, match=r"are float32, the model's bfloat16.*dtype float32"):
        load_skill(skill).attach(open_model(base, dtype="bfloat16"))
    load_skill(skill).attach(open_model(base, dtype="float32"))


def test_a_word_of_a_task_can_be_mended_in_a_copy_of_its_file(room, skill, tmp_path) -> None:
    broken, mended = tmp_path / "broken.toml", tmp_path / "mended.toml"
    text = Path(room.task).read_text()
    broken.write_text(text.replace('"dog"', '"dogcat"'))
    mended.write_text(text)
    with pytest.raises(BadSpec, match=re.escape("copy of the task's .toml file given as --task")):
        accuracy(room, skill, room.other, task=[str(broken)])
    accuracy(room, skill, room.other, task=[str(mended)])
