"""Copies of checkpoints: a few weights changed, every other byte the same."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway.methods.graft import api as graft
from cutaway.methods.graft.maths.patch import Patch, values_at
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.patched_copy import copy_patched
from cutaway.methods.graft.skill import load_skill
from cutaway.models.load import open_model
from tests.tiny import tiny


def contents(folder) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "cutaway.json"}


def stored_as(folder, dtype, *, shards: bool) -> None:
    """Store a checkpoint again, in another precision and perhaps in several files."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForCausalLM if "llama" in folder.name else AutoModelForMaskedLM
    model = auto.from_pretrained(folder).to(dtype)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "5GB")
    (folder / "LICENSE").write_text("free")
    (folder / "pytorch_model.bin").write_bytes(b"the base again")


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attach_and_detach_keep_precision_and_layout(toy, tmp_path, dtype, shards) -> None:
    base = shutil.copytree(toy.pair("llama")[0], tmp_path / "llama")
    stored_as(base, dtype, shards=shards)
    result = toy.learn("llama", base=str(base), steps=0, baselines="none", text="none")
    skill = str(result.path / "skill.safetensors")
    graft.attach(skill, base=str(base), out=str(tmp_path / "with"))
    graft.detach(skill, model=str(tmp_path / "with"), out=str(tmp_path / "without"))
    before, with_skill, after = (contents(tmp_path / n) for n in ("llama", "with", "without"))
    kept = {name: data for name, data in before.items() if name != "pytorch_model.bin"}
    assert after == kept
    assert {name: len(data) for name, data in with_skill.items()} == {
        name: len(data) for name, data in kept.items()
    }
    assert ("model.safetensors.index.json" in kept) == shards
    assert {name for name in kept if with_skill[name] != kept[name]} <= {
        name for name in kept if name.endswith(".safetensors")
    }
    # Scores were measured with exactly the weights that the checkpoint has.
    opened, patch = open_model(tmp_path / "with", check=False), load_skill(skill).patch
    assert patch.size == result.summary["sizes"][0]
    for name, value in values_at(opened.params(), patch.mask).items():
        assert torch.equal(value, patch.after[name])
        assert bool((patch.after[name] != patch.before[name]).all())


def test_values_of_an_earlier_skill_are_rounded_to_the_checkpoint(toy, tmp_path) -> None:
    base = shutil.copytree(toy.pair("llama")[0], tmp_path / "llama")
    stored_as(base, torch.bfloat16, shards=False)
    result = toy.learn(
        "llama", base=str(base), steps=0, sparsity=1.0, precision="float32", baselines="none",
        text="none",
    )  # fmt: skip
    skill = str(result.path / "skill.safetensors")
    done = graft.attach(skill, base=str(base), out=str(tmp_path / "with"))
    assert done.facts["changed"] < done.facts["size"] and "rounded to bfloat16" in done.verdict[1]
    graft.detach(skill, model=str(tmp_path / "with"), out=str(tmp_path / "without"))
    assert (
        contents(tmp_path / "without")["model.safetensors"] == (contents(base)["model.safetensors"])
    )


def test_tied_weights_are_changed_wherever_they_are_stored(tmp_path) -> None:
    folder = tiny("gpt2", tmp_path / "gpt2")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    # A checkpoint of the body alone, with the tied output embedding stored as well.
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    save_file({**bare, "lm_head.weight": bare["wte.weight"].clone()}, path, {"format": "pt"})
    lm = open_model(folder, check=False)
    mask = Mask({"transformer.wte.weight": torch.tensor([3, 70])})
    old = values_at(lm.params(), mask)
    patch = Patch(mask, old, {name: value + 1 for name, value in old.items()})
    assert copy_patched(lm.module, folder, tmp_path / "new", patch)
    made = load_file(tmp_path / "new" / "model.safetensors")
    assert torch.equal(made["lm_head.weight"], made["wte.weight"])
    assert int((made["wte.weight"] != bare["wte.weight"]).sum()) == 2


def test_weights_that_the_files_do_not_have_are_not_patched(tmp_path) -> None:
    folder = tiny("llama", tmp_path / "llama")
    lm = open_model(folder, check=False)
    name = "model.norm.weight"
    mask = Mask({name: torch.tensor([0])})
    wrong = Patch(mask, {name: torch.tensor([9.0])}, {name: torch.tensor([1.0])})
    assert not copy_patched(lm.module, folder, tmp_path / "new", wrong)
    tensors = load_file(folder / "model.safetensors")
    tensors["other"] = tensors.pop(name)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    right = Patch(mask, values_at(lm.params(), mask), {name: torch.tensor([1.0])})
    assert not copy_patched(lm.module, folder, tmp_path / "new", right)
    assert not (tmp_path / "new").exists()


def test_a_model_with_an_adapter_is_saved_in_the_precision_of_its_base(toy, tmp_path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    base = shutil.copytree(toy.pair("llama")[0], tmp_path / "llama")
    stored_as(base, torch.float16, shards=False)
    model = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")
    joined = f"{base}+{tmp_path / 'adapter'}"
    skill = toy.learn("llama", base=joined, steps=0, baselines="none", text="none", out=None)
    graft.attach(
        str(skill.path / "skill.safetensors"), base=joined, out=str(tmp_path / "with"), quiet=True
    )
    config = json.loads((tmp_path / "with" / "config.json").read_text())
    assert config["dtype"] == "float16"
