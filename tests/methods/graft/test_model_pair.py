"""Pairs of checkpoints: which weights may be chosen, and which pairs are refused."""

import json
import shutil

import pytest
import torch

from cutaway.core.errors import BadData, Mismatch
from cutaway.methods.graft.skill import load_skill
from cutaway.models.digests import checksum
from cutaway.models.load import open_model
from tests.tiny import tiny


def test_only_weights_that_fit_a_pattern_are_chosen(toy) -> None:
    result = toy.learn(params="*attention*", baselines="none", text="none", steps=2)
    skill = load_skill(result.path / "skill.safetensors")
    assert all("attention" in name for name in skill.patch.mask.indices)
    assert set(skill.patch.mask.indices) <= set(skill.shapes)


def test_a_lora_adapter_is_a_tuned_model(toy, tmp_path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    base, _ = toy.pair("llama")
    wrapped = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    wrapped.save_pretrained(tmp_path / "adapter")
    result = toy.learn(
        "llama", tuned=f"{base}+{tmp_path / 'adapter'}", steps=2, baselines="none", text="none"
    )
    skill = load_skill(result.path / "skill.safetensors")
    assert {n.rsplit(".", 2)[1] for n in skill.patch.mask.indices} <= {"q_proj", "v_proj"}


def test_checkpoints_that_do_not_belong_together_are_refused(toy, tmp_path) -> None:
    base, _ = toy.pair("bert")
    with pytest.raises(Mismatch, match="tuned lacks"):
        toy.learn(tuned=toy.pair("llama")[0])
    with pytest.raises(BadData, match="nothing was tuned"):
        toy.learn(tuned=base)
    wide = tiny("bert", tmp_path / "wide", hidden_size=16, intermediate_size=24)
    with pytest.raises(Mismatch, match="shape"):
        toy.learn(tuned=str(wide))


def test_the_live_model_is_tuned_inside_and_the_base_again_outside(request_of, toy) -> None:
    pair = request_of(params="*attention*").pair
    goal = open_model(toy.pair("bert")[1]).params()
    before = {name: value.clone() for name, value in pair.model.params().items()}
    assert pair.fixed and not set(pair.fixed) & set(pair.params)
    with pair.as_tuned():
        assert all(torch.equal(v, goal[n]) for n, v in pair.model.params().items())
    assert all(torch.equal(v, before[n]) for n, v in pair.model.params().items())


def test_the_weights_are_restored_after_an_error(request_of) -> None:
    pair = request_of().pair
    with pytest.raises(RuntimeError, match="inside"), pair.as_tuned():
        raise RuntimeError("inside")
    assert all(torch.equal(value, pair.base[name]) for name, value in pair.params.items())


def test_only_changed_weights_may_be_chosen(request_of) -> None:
    pair = request_of().pair
    assert pair.total == sum(value.numel() for value in pair.tuned.values())
    assert all(not torch.equal(pair.base[name], pair.tuned[name]) for name in pair.base)
    assert pair.facts["base"]["checksum"] == checksum(pair.lm.params())


def test_another_tokenizer_is_refused(toy, tmp_path) -> None:
    _, tuned = toy.pair("bert")
    copy = shutil.copytree(tuned, tmp_path / "copy")
    path = copy / "tokenizer.json"
    text = json.loads(path.read_text())
    words = list(text["model"]["vocab"])
    vocab = text["model"]["vocab"]
    vocab[words[-1]], vocab[words[-2]] = vocab[words[-2]], vocab[words[-1]]
    path.write_text(json.dumps(text))
    with pytest.raises(Mismatch, match="different tokenizers"):
        toy.learn(tuned=str(copy))
