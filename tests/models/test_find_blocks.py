"""The blocks of a family without a row, and the reasons for which none can be read."""

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from cutaway.core.errors import BadModel
from cutaway.models import anatomy, find_blocks
from cutaway.models.load import open_model
from tests.every_family.build import tiny_of


@pytest.mark.parametrize(
    ("family", "blocks"),
    [
        ("gemma3", "model.language_model.layers"),
        ("bart", "model.decoder.layers"),
        ("longcat_flash", "model.layers"),
        ("openai-gpt", "transformer.h"),
    ],
)
def test_blocks_are_those_of_the_language_model(family, blocks, tmp_path) -> None:
    assert open_model(tiny_of(family, "causal", tmp_path)).anatomy.blocks == blocks


@pytest.mark.parametrize(
    ("family", "kind", "reason"),
    [
        ("xlnet", "causal", r"states of shape \(7, 2, 32\)"),
        ("gemma3n_text", "causal", r"states of shape \(4, 2, 7, 32\)"),
        ("hrm_text", "causal", "were called 24 times in one pass"),
        ("xlm", "masked", "no module is a block"),
        ("reformer", "causal", "reversible"),
    ],
)
def test_a_family_without_readable_blocks_is_refused_with_the_reason(
    family, kind, reason, tmp_path
) -> None:
    with pytest.raises(BadModel, match=f"can't be read block by block: .*{reason}.*isn't support"):
        open_model(tiny_of(family, kind, tmp_path))


def test_a_block_that_is_called_again_is_not_taken_for_a_list(folder_of, monkeypatch) -> None:
    monkeypatch.setattr(anatomy, "ANATOMIES", {})
    with pytest.raises(BadModel, match=r"1 modules at 'albert.*were called 3 times"):
        open_model(folder_of("albert"))


def test_a_model_that_does_not_run_on_ids_alone_is_refused_with_its_error(tmp_path) -> None:
    with pytest.raises(
        BadModel, match="doesn't run in transformers on a row of token ids alone, in float32"
    ):
        open_model(tiny_of("gemma4_unified_assistant", "causal", tmp_path))


def test_a_model_without_any_list_has_no_layers() -> None:
    config = AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=1, vocab_size=9)
    model = AutoModelForCausalLM.from_config(config)
    model.transformer.h = None
    with pytest.raises(BadModel, match="no list of blocks"):
        find_blocks.find_blocks(model)
