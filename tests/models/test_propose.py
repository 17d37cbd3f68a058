"""Families without a row: opened if the proposed anatomy passes the checks, else refused."""

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from cutaway.catalog import method_module
from cutaway.core.errors import BadModel
from cutaway.models import anatomy
from cutaway.models.check import check
from cutaway.models.load import open_model
from tests.tiny import DECODER, ENCODER, SENTENCES, SHIFTED, _shake, tiny_tokenizer

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


@pytest.mark.parametrize(
    ("family", "shape", "check_name"),
    [("nystromformer", ENCODER, "padding"), ("esm", SHIFTED, "logits")],
)
def test_a_family_that_fails_a_check_is_refused(family, shape, check_name, tmp_path) -> None:
    style = "roberta" if family == "esm" else "bert"
    folder = unknown(family, tmp_path, shape, kind="masked", style=style)
    with pytest.raises(BadModel, match=f"has no row.*{check_name}.*add-a-model-family"):
        open_model(folder)
    assert not check(open_model(folder, check=False)).passed


def test_a_model_without_a_list_of_blocks_is_refused(folder_of, no_rows) -> None:
    with pytest.raises(BadModel, match="no list of 3 blocks"):
        open_model(folder_of("albert"))
