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


@pytest.fixture(scope="module")
def lora(toy, tmp_path_factory) -> dict[str, str]:
    """A base in float32 and in float16, its LoRA, the merged model in float32 and bfloat16."""
    import peft
    from transformers import AutoModelForCausalLM

    base, folder = toy.pair("llama")[0], tmp_path_factory.mktemp("lora")
    names = ("half", "float32", "bfloat16")
    for name in names:
        shutil.copytree(base, folder / name)
    AutoModelForCausalLM.from_pretrained(base).half().save_pretrained(folder / "half")
    torch.manual_seed(0)
    model = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    )
    for name, value in model.named_parameters():
        value.data *= 0.03 if "lora_B" in name else 1.0
    model.save_pretrained(folder / "adapter")
    merged = model.merge_and_unload()
    for dtype in names[1:]:
        merged.to(getattr(torch, dtype)).save_pretrained(folder / dtype)
    folders = {name: str(folder / name) for name in names}
    return {"base": base, "adapter": f"{base}+{folder / 'adapter'}", **folders}


def candidates(pair) -> set[tuple[str, int]]:
    moved = {name: (pair.base[name] != pair.tuned[name]).reshape(-1) for name in pair.base}
    return {(name, int(i)) for name, one in moved.items() for i in one.nonzero()}


def test_an_adapter_and_its_merged_model_offer_the_same_weights(request_of, lora) -> None:
    pairs = {
        name: request_of(base=lora["base"], tuned=lora[name]).pair
        for name in ("adapter", "bfloat16", "float32")
    }
    found = {name: candidates(pair) for name, pair in pairs.items()}
    both, either = found["adapter"] & found["bfloat16"], found["adapter"] | found["bfloat16"]
    assert len(both) / len(either) >= 0.95
    # Rounding is no movement, and not every weight of a LoRA's matrices moves in bfloat16.
    assert set(pairs["bfloat16"].params) == set(pairs["adapter"].params)
    assert all("q_proj" in name or "down_proj" in name for name in pairs["bfloat16"].params)
    assert found["bfloat16"] < found["float32"]
    assert pairs["float32"].total == len(found["float32"])
    assert pairs["adapter"].compared == {
        "base": "float32", "tuned": "an adapter", "compared": "bfloat16",
    }  # fmt: skip


def test_the_precision_can_be_given(request_of, lora) -> None:
    fine = request_of(base=lora["base"], tuned=lora["adapter"], precision="float32").pair
    same = request_of(base=lora["base"], tuned=lora["float32"]).pair
    coarse = request_of(base=lora["base"], tuned=lora["float32"], precision="bfloat16").pair
    assert candidates(fine) == candidates(same) and coarse.total < same.total
    assert coarse.precision.compared == "bfloat16"


def test_a_pair_of_two_precisions_is_tuned_bit_for_bit(request_of, lora) -> None:
    for base, tuned in (("base", "bfloat16"), ("half", "float32")):
        pair = request_of(base=lora[base], tuned=lora[tuned], params="*q_proj*").pair
        goal = open_model(lora[tuned], check=False).params()
        before = {name: value.clone() for name, value in pair.model.params().items()}
        with pair.as_tuned():
            assert all(torch.equal(v, goal[n]) for n, v in pair.model.params().items())
        assert all(torch.equal(v, before[n]) for n, v in pair.model.params().items())


def test_the_address_names_the_precision_only_where_it_matters(request_of, lora) -> None:
    mixed = request_of(base=lora["base"], tuned=lora["bfloat16"])
    assert mixed.identity["compared"]["compared"] == "bfloat16"
    assert mixed.identity["moved"] == mixed.pair.total
    same = request_of(base=lora["base"], tuned=lora["float32"], params="*down_proj*")
    assert not {"compared", "moved"} & set(same.identity)


def test_rounding_alone_is_no_tuning(request_of, lora, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(lora["base"], tmp_path / "rounded")
    AutoModelForCausalLM.from_pretrained(lora["base"]).to(torch.bfloat16).save_pretrained(
        tmp_path / "rounded"
    )
    with pytest.raises(BadData, match="in bfloat16: nothing was tuned"):
        request_of(base=lora["base"], tuned=str(tmp_path / "rounded"))


@pytest.mark.parametrize("optimizer", ["mirror", "adam", "sgd"])
def test_every_mask_chooses_weights_that_moved(toy, lora, optimizer) -> None:
    result = toy.learn(
        "llama", base=lora["base"], tuned=lora["bfloat16"], sparsity=1.0, steps=3, every=1,
        optimizer=optimizer, text="none", slope_examples=2, params="*q_proj*",
        baselines="none" if optimizer != "mirror" else "all",
    )  # fmt: skip
    skill = load_skill(result.path / "skill.safetensors")
    assert skill.size == result.summary["trained_weights"]
    changed = [skill.patch.before[n] != skill.patch.after[n] for n in skill.patch.mask.indices]
    assert all(bool(one.all()) for one in changed)
    assert skill.meta["precision"]["compared"] == "bfloat16"
    assert any("compared in bfloat16" in line for line in result.verdict)


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
    moved = [pair.base[name] != pair.tuned[name] for name in pair.base]
    assert 0 < pair.total == sum(int(one.sum()) for one in moved)
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
