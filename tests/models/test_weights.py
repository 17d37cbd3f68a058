"""Weights: as asked for, whole, and of the architecture that the config says."""

import pytest
import torch

from cutaway.core.errors import BadModel, Missing
from cutaway.models.load import open_model
from tests.models.breaking import change_weights, edit_json, refusal
from tests.tiny import SENTENCES, tiny


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_weights_come_in_the_asked_precision(dtype, lm_of) -> None:
    lm = lm_of("llama", dtype=dtype)
    assert lm.dtype == dtype
    assert {p.dtype for p in lm.params().values()} == {getattr(torch, dtype)}


def test_the_attention_kernel_is_as_asked_or_said(lm_of) -> None:
    assert lm_of("llama", attention="sdpa").attention == "sdpa"
    assert lm_of("llama").attention == "eager"
    without = lm_of("mpnet", attention="sdpa")
    assert without.attention == "eager"
    assert any("'sdpa'" in note for note in without.notes)


def test_a_family_that_transformers_does_not_know_is_refused(copy) -> None:
    folder = copy()
    edit_json(folder / "config.json", model_type="from_the_future")
    assert "from_the_future" in refusal(folder)


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("llama", {"hidden_size": "32"}, "'hidden_size' expected int, got str"),
        ("llama", {"num_attention_heads": 5}, "attention heads"),
        ("llama", {"num_attention_heads": 0}, "ZeroDivisionError"),
        ("gpt2", {"n_head": 0}, "ZeroDivisionError"),
        ("gpt2", {"n_head": 5}, "`embed_dim` must be divisible by num_heads"),
        ("bert", {"num_attention_heads": 0}, "ZeroDivisionError"),
        ("bert", {"vocab_size": None}, "vocab_size"),
    ],
)
def test_a_config_with_values_that_cannot_be_is_refused(family, changes, said, copy) -> None:
    folder = copy(family)
    edit_json(folder / "config.json", **changes)
    assert said in refusal(folder)


def test_an_encoder_decoder_is_refused(copy) -> None:
    folder = copy()
    edit_json(
        folder / "config.json",
        model_type="t5",
        architectures=["T5ForCausalLM"],
        is_encoder_decoder=True,
    )
    assert "encoder-decoder" in refusal(folder)


def test_weights_of_another_shape_are_refused(copy) -> None:
    folder = copy()
    edit_json(folder / "config.json", n_embd=64)
    with pytest.raises(BadModel, match="can't be loaded"):
        open_model(folder)


def test_weights_lacking_a_part_of_the_body_are_refused(copy) -> None:
    folder = copy("llama")
    change_weights(folder, lambda name: "layers.1.mlp" not in name)
    with pytest.raises(BadModel, match="lacks 3 weights of the model's body"):
        open_model(folder)


def test_weights_without_a_head_open_for_their_layers_only(copy) -> None:
    folder = copy("bert")
    change_weights(folder, lambda name: not name.startswith("cls"))
    lm = open_model(folder)
    assert not lm.has_head
    assert any("no language-model head" in note for note in lm.notes)
    assert len(lm.read(SENTENCES[:2])) == 4
    with pytest.raises(Missing):
        lm.unembed(torch.zeros(1, lm.width))


def test_shards_open_as_one(tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = tiny("gpt2", tmp_path / "whole")
    parts = tmp_path / "parts"
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(parts, max_shard_size="50KB")
    AutoTokenizer.from_pretrained(whole).save_pretrained(parts)
    assert len(list(parts.glob("*.safetensors"))) > 1
    one, two = open_model(whole).read(SENTENCES)[3], open_model(parts).read(SENTENCES)[3]
    torch.testing.assert_close(one, two)


def test_remote_code_is_not_run_unless_asked_for(copy) -> None:
    folder = copy()
    trap = folder.parent / "sprung"
    (folder / "evil.py").write_text(f"open({str(trap)!r}, 'w')\n")
    edit_json(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.EvilConfig"})
    refusal(folder)
    assert not trap.exists()
