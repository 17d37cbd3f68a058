"""Pairs of checkpoints: which weights may be chosen, and which pairs are refused."""

import pytest

from cutaway.core.errors import BadData, Mismatch
from cutaway.methods.graft.skill import load_skill
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
