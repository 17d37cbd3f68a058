"""Families without a row: opened if the proposed anatomy passes the checks, else refused."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from cutaway.catalog import method_module
from cutaway.core.errors import BadModel, BadSpec
from cutaway.models import anatomy, propose
from cutaway.models.check import check
from cutaway.models.hooks import run_from
from cutaway.models.load import open_model
from tests.every_family.build import EVERY_FAMILY, tiny_of
from tests.tiny import DECODER, ENCODER, SENTENCES, _shake, tiny_tokenizer

HIDDEN = ("bert", "gemma2", "gpt2", "gpt_neox", "llama", "mpnet", "olmo2", "opt", "phi", "roberta")


def unknown(family, folder, shape, *, kind="causal", style="llama", **more):
    """A checkpoint of a family that is not in ANATOMIES."""
    tokenizer = tiny_tokenizer(style)
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **ids, **shape, **more)
    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    model = auto.from_config(config).eval()
    _shake(model)
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def no_rows(monkeypatch) -> None:
    monkeypatch.setattr(anatomy, "ANATOMIES", {})


@pytest.mark.parametrize("family", HIDDEN)
def test_families_with_their_row_hidden_are_found_and_verified(family, folder_of, no_rows) -> None:
    lm = open_model(folder_of(family))
    report = check(lm)
    report.need_passed()
    assert report.anatomy == "proposed by inspection, verified"
    assert any("proposed by inspection" in note for note in report.notes)
    assert len(lm.read(SENTENCES[:2])) == lm.layers + 1


@pytest.mark.parametrize("family", ["gpt2", "llama", "phi", "gpt_neox", "olmo2"])
def test_parts_of_blocks_are_found_as_the_row_names_them(family, folder_of, monkeypatch) -> None:
    row = anatomy.ANATOMIES[family]
    monkeypatch.setattr(anatomy, "ANATOMIES", {})
    found = open_model(folder_of(family)).anatomy
    for field in ("norm1", "attn", "norm2", "mlp", "layout", "final", "head", "decoder"):
        assert getattr(found, field) == getattr(row, field), field


def test_a_family_without_a_row_opens_when_it_passes_the_checks(tmp_path) -> None:
    granite = {"logits_scaling": 3.0, "residual_multiplier": 0.5, "embedding_multiplier": 2.0}
    folder = unknown("granite", tmp_path, DECODER, **granite)
    lm = open_model(folder)
    assert lm.anatomy.logit_operations == (("divide", "logits_scaling"),)
    # A residual factor is nothing a layout knows, so the parts stay unnamed.
    assert lm.anatomy.mlp is None
    assert "without sub-modules" in method_module("shortcut", "page").supports(lm)


def test_a_family_that_fails_a_check_is_refused_with_what_it_means(tmp_path) -> None:
    folder = unknown("nystromformer", tmp_path, ENCODER, kind="masked", style="bert")
    with pytest.raises(
        BadModel, match=r"has no row.*padding on the right.*other texts of its batch"
    ):
        open_model(folder)
    assert not check(open_model(folder, check=False)).passed


def test_a_failed_check_that_a_row_may_cure_ends_with_the_guide(
    folder_of, no_rows, monkeypatch
) -> None:
    monkeypatch.setattr(propose, "LOGIT_FIELDS", {})
    with pytest.raises(BadModel, match=r"has no row.*logits.*add-a-model-family"):
        open_model(folder_of("gemma2", final_logit_softcapping=0.5))


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("mamba", "first_hidden_state", 1),
        ("bart", "padding", "right"),
        ("longformer", "resumable", False),
        ("zaya", "resumable", False),
        ("gemma4_text", "resumable", True),
        ("roberta-prelayernorm", "final", ("roberta_prelayernorm.LayerNorm",)),
        ("recurrent_gemma", "logit_operations", (("softcap", "logits_soft_cap"),)),
        ("qwen3_next", "attn", None),
        ("big_bird", "padding", "either"),
    ],
)
def test_what_names_do_not_say_is_found_by_trying(family, field, value, tmp_path) -> None:
    kind = "masked" if (family, "causal") not in EVERY_FAMILY else "causal"
    lm = open_model(tiny_of(family, kind, tmp_path))
    assert getattr(lm.anatomy, field) == value


@pytest.mark.parametrize("family", ["bart", "mamba"])
def test_the_noise_of_16_bits_hides_no_wrong_choice(family, tmp_path) -> None:
    """Weights are widened while values are tried; mamba keeps its states in float32."""
    folder = tiny_of(family, "causal", tmp_path)
    plain, narrow = (open_model(folder, dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert narrow.anatomy == plain.anatomy
    assert str(narrow.decoder.weight.dtype) == "torch.bfloat16"


def test_a_multiplier_may_divide_or_multiply(tmp_path) -> None:
    folder = tiny_of("hyperclovax", "causal", tmp_path, logits_scaling=3.0)
    lm = open_model(folder)
    assert lm.anatomy.logit_operations == (("multiply", "logits_scaling"),)


def test_a_model_that_can_not_start_at_a_layer_says_so(tmp_path) -> None:
    lm = open_model(tiny_of("longformer", "masked", tmp_path))
    ids = torch.ones(1, 3, dtype=torch.long)
    with pytest.raises(BadSpec, match="can't be run from a layer on"):
        run_from(lm, torch.zeros(1, 3, 32), 1, ids, ids.bool())
