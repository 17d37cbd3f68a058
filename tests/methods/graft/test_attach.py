"""Checkpoints with a skill attached or detached are plain transformers checkpoints."""

import torch

from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill


def test_plain_checkpoints_with_and_without_load_in_transformers(learned, toy, tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    family, _, out = learned
    base, _ = toy.pair(family)
    auto = AutoModelForCausalLM if family == "llama" else AutoModelForMaskedLM
    graft.attach(skill=str(out), base=base, out=str(tmp_path / "with"))
    graft.detach(skill=str(out), model=str(tmp_path / "with"), out=str(tmp_path / "without"))
    own, changed, restored = (
        dict(auto.from_pretrained(p).named_parameters())
        for p in (base, tmp_path / "with", tmp_path / "without")
    )
    assert all(torch.equal(own[n], restored[n]) for n in own)
    skill = load_skill(out)
    for name, places in skill.patch.mask.indices.items():
        assert torch.equal(changed[name].take(places), skill.patch.after[name])
    bare = auto.from_pretrained(base)
    skill.attach(bare)
    assert all(torch.equal(p, changed[n]) for n, p in bare.named_parameters())
