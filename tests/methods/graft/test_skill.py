"""Skills: attach, detach, save, load, refusals; classes and heads after loading."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from cutaway.core.errors import BadSpec, Corrupt, Mismatch
from cutaway.core.textset import TextSet
from cutaway.methods.graft import api as graft
from cutaway.methods.graft import tuned_head as heads
from cutaway.methods.graft.learn import resolve
from cutaway.methods.graft.skill import load_skill, model_weights
from cutaway.methods.graft.spec import LearnSpec
from cutaway.models.digests import checksum
from cutaway.models.load import open_model
from cutaway.recipe.life_cycle import Context
from cutaway.store.artefacts import load_artefact
from cutaway.training.task_model import HEAD_FILE
from cutaway.training.task_split import align_classes_by_name
from tests.methods.graft.toy import ToyGraft, value


def spelled(toy: ToyGraft, names: dict[str, str]) -> str:
    """The other set with its labels written in these words."""
    head, *lines = Path(toy.other).read_text().splitlines()
    rows = [line.rsplit("\t", 1) for line in lines]
    path = toy.folder / f"{'-'.join(names.values())}.tsv"
    path.write_text("\n".join([head, *(f"{text}\t{names[label]}" for text, label in rows)]) + "\n")
    return str(path)


def accuracy(toy: ToyGraft, skill: str, data: str, **more) -> dict[str, float]:
    found = graft.eval(
        skill=[skill], base=toy.pair("bert")[0], data=[data], runs=toy.runs, text="none",
        quiet=True, **more,
    ).rows  # fmt: skip
    return {kind: value(found, kind, "accuracy")[0] for kind in ("base", "learned")}


@pytest.mark.parametrize("names", [("neg", "pos"), ("NEG", "Pos")])
def test_classes_of_the_same_names_are_matched_by_name(toy, skill, names) -> None:
    numbered = accuracy(toy, skill, toy.other)
    assert numbered["learned"] > 0.6
    assert accuracy(toy, skill, spelled(toy, dict(zip("01", names, strict=True)))) == numbered
    # 'pos' for what was 0: every answer that was right is wrong.
    swapped = accuracy(toy, skill, spelled(toy, dict(zip("10", names, strict=True))))
    assert swapped == pytest.approx({kind: 1 - share for kind, share in numbered.items()})


@pytest.mark.parametrize("names", [("sad", "happy"), ("1", "2")])
def test_classes_of_other_names_are_refused_with_both_lists(toy, skill, names) -> None:
    data = spelled(toy, dict(zip("01", names, strict=True)))
    with pytest.raises(Mismatch, match=f"{', '.join(sorted(names))}.*neg, pos.*0 to 1.*--task"):
        accuracy(toy, skill, data)


def test_rows_follow_their_class_into_another_order() -> None:
    texts = TextSet("x", ("a", "b", "c"), np.array([0, 1, 1]), "binary", ("Yes", "no"))
    found = align_classes_by_name(texts, ("no", "yes"))
    assert (found.labels.tolist(), found.classes) == ([1, 0, 0], ("no", "yes"))
    assert align_classes_by_name(texts, ("yes", "maybe")) is None
    assert align_classes_by_name(texts, ("no", "yes", "NO")) is None


@pytest.mark.parametrize(("family", "at"), [("bert", "auto"), ("llama", "auto"), ("bert", "first")])
def test_a_checkpoint_with_a_head_has_the_logits_of_the_learned_skill(
    toy, tmp_path, family, at
) -> None:
    base, _ = toy.pair(family)
    tuned, out = str(tmp_path / "tuned"), str(tmp_path / "with")
    shared = {"task": toy.task, "data": toy.data, "mode": "head", "at": at, "runs": toy.runs}
    graft.finetune(model=base, steps=10, lr=0.05, every=10, out=tuned, quiet=True, **shared)
    learn = {"tuned": tuned, "mode": "head", "at": at, "text": "none", "baselines": "none"}
    path = toy.learn(family, **learn, steps=2, sparsity=0.2).path / "skill.safetensors"
    skill = load_skill(path)
    spec = LearnSpec(base=base, **shared, **{k: learn[k] for k in ("tuned", "text", "baselines")})
    model, rows = resolve(spec, Context()).pair.model, range(12)
    assert set(skill.head) == set(heads.head_names(model))
    skill.attach(model.lm)
    with torch.inference_mode():
        expected = model.logits(rows)
    told = graft.attach(skill=str(path), base=base, out=out)
    assert "head" in " ".join(told.verdict)
    if at != "auto":
        kept = load_artefact(Path(out) / HEAD_FILE)
        assert kept.meta["at"] == at
        again, _ = heads.load_tuned_with_head(model, spec, out)
        model.lm.module.load_state_dict(open_model(out).module.state_dict())
        assert all(torch.equal(model.params()[n], again[n]) for n in model.params())
    else:
        plain = AutoModelForSequenceClassification.from_pretrained(out).eval()
        assert plain.config.id2label == {0: "neg", 1: "pos"}
        model.module.load_state_dict(plain.state_dict())
    with torch.inference_mode():
        assert torch.equal(model.logits(rows), expected)


def test_a_skill_with_a_head_is_evaluated_with_the_prompts_of_a_task(toy, tmp_path) -> None:
    base, _ = toy.pair("bert")
    tuned = str(tmp_path / "tuned")
    shared = {"task": toy.task, "data": toy.data, "mode": "head", "runs": toy.runs}
    graft.finetune(model=base, steps=4, lr=0.05, every=4, out=tuned, quiet=True, **shared)
    learned = toy.learn(tuned=tuned, mode="head", text="none", baselines="none", steps=1)
    path = str(learned.path / "skill.safetensors")
    with pytest.raises(BadSpec, match=r"learned with a head.*`graft attach`.*--task"):
        accuracy(toy, path, toy.other)
    assert set(accuracy(toy, path, toy.other, task=[toy.task])) == {"base", "learned"}


def test_another_precision_is_named_and_the_remedy_works(toy, skill) -> None:
    base = toy.pair("bert")[0]
    with pytest.raises(Mismatch, match=r"are float32, the model's bfloat16.*dtype float32"):
        load_skill(skill).attach(open_model(base, dtype="bfloat16"))
    load_skill(skill).attach(open_model(base, dtype="float32"))


def test_a_label_word_can_be_changed_in_a_copy_of_the_task_file(toy, skill, tmp_path) -> None:
    broken, mended = tmp_path / "broken.toml", tmp_path / "mended.toml"
    text = Path(toy.task).read_text()
    broken.write_text(text.replace('"dog"', '"dogcat"'))
    mended.write_text(text)
    with pytest.raises(BadSpec, match=re.escape("copy of the task's .toml file given as --task")):
        accuracy(toy, skill, toy.other, task=[str(broken)])
    accuracy(toy, skill, toy.other, task=[str(mended)])


def test_attaching_writes_the_tuned_values_and_detaching_restores_the_base(learned, toy) -> None:
    family, result, out = learned
    base, tuned = toy.pair(family)
    lm, skill = open_model(base), graft.load(out)
    before = {n: p.clone() for n, p in model_weights(lm).items()}
    goal = model_weights(open_model(tuned))
    skill.attach(lm)
    for name, places in skill.patch.mask.indices.items():
        assert torch.equal(model_weights(lm)[name].take(places), goal[name].take(places))
    changed = sum(int((model_weights(lm)[n] != before[n]).sum()) for n in before)
    assert 0 < changed <= skill.size
    skill.detach(lm)
    assert all(torch.equal(model_weights(lm)[n], before[n]) for n in before)
    metrics = skill.meta["metrics"]["learned"]["accuracy"]["value"]
    share = result.summary["sparsity"][0]
    means = np.mean(value(result.rows, "learned", "accuracy", sparsity=share))
    assert metrics == pytest.approx(means)


def test_saved_loaded_and_attached_gives_the_same_logits(learned, toy, tmp_path) -> None:
    family, _, out = learned
    base, _ = toy.pair(family)
    lm, skill = open_model(base), load_skill(out)
    again = load_skill(skill.save(tmp_path / "again.safetensors"))
    ids = torch.tensor([[5, 6, 7, 8]])
    found = []
    for one in (skill, again):
        one.attach(lm)
        found.append(lm.module(input_ids=ids).logits)
        one.detach(lm)
    assert torch.equal(*found)
    assert not torch.equal(found[0], lm.module(input_ids=ids).logits)


def test_the_wrong_base_is_refused_with_both_checksums(learned, toy, tmp_path) -> None:
    family, _, out = learned
    base, tuned = toy.pair(family)
    skill, other = load_skill(out), open_model(tuned)
    mine, found = skill.meta["base"]["checksum"][:12], checksum(model_weights(other))[:12]
    before = {n: p.clone() for n, p in model_weights(other).items()}
    with pytest.raises(Mismatch, match=rf"{mine}.*{found}"):
        skill.attach(other)
    assert all(torch.equal(p, before[n]) for n, p in model_weights(other).items())
    with pytest.raises(Mismatch, match="isn't attached"):
        skill.detach(open_model(base))
    with pytest.raises(Mismatch, match="differ from its values"):
        graft.detach(skill=str(out), model=base, out=str(tmp_path / "x"))


def test_attaching_twice_is_refused_and_other_weights_may_be_ignored(learned, toy) -> None:
    family, _, out = learned
    lm, skill = open_model(toy.pair(family)[0]), load_skill(out)
    skill.attach(lm)
    with pytest.raises(Mismatch, match="belongs to"):
        skill.attach(lm)
    with pytest.raises(Mismatch, match="attached already"):
        skill.attach(lm, check="places")
    name = next(n for n in model_weights(lm) if n not in skill.patch.mask.indices)
    model_weights(lm)[name].data.add_(1.0)
    with pytest.raises(Mismatch, match="belongs to"):
        skill.detach(lm)
    assert skill.detach(lm, check="places") is lm


def test_a_model_of_another_precision_is_refused(learned, toy) -> None:
    family, _, out = learned
    lm = open_model(toy.pair(family)[0], dtype="bfloat16")
    with pytest.raises(Mismatch, match="belongs to"):
        load_skill(out).attach(lm)
    with pytest.raises(Mismatch, match="dtype float32"):
        load_skill(out).attach(lm, check="places")


def test_a_skill_file_takes_few_bytes_per_weight(toy, learned) -> None:
    _, _, out = learned
    size = out.stat().st_size + out.with_suffix(".json").stat().st_size
    assert size < 12 * load_skill(out).size + 40_000


def test_files_that_are_no_skill_are_refused(toy, learned, tmp_path) -> None:
    _, _, out = learned
    whole, broken = out.read_bytes(), tmp_path / "broken.safetensors"
    broken.write_bytes(whole[:-4])
    broken.with_suffix(".json").write_text(out.with_suffix(".json").read_text())
    with pytest.raises(Corrupt):
        load_skill(broken)
    other = json.loads(out.with_suffix(".json").read_text())
    assert other["meta"]["base"]["checksum"]
    with pytest.raises(BadSpec, match="at least two"):
        graft.overlap([out], runs=toy.runs)


def test_bfloat16_models_have_skills_too(toy) -> None:
    result = toy.learn(dtype="bfloat16", steps=2, baselines="none", text="none")
    skill = load_skill(result.path / "skill.safetensors")
    lm = open_model(toy.pair("bert")[0], dtype="bfloat16")
    before = checksum(model_weights(lm))
    skill.detach(skill.attach(lm))
    assert checksum(model_weights(lm)) == before
