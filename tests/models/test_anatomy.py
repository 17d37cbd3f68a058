"""Every row of ANATOMIES against plain transformers, loaded apart from ours."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from cutaway.models.anatomy import ANATOMIES, VARIANTS, anatomy_of
from cutaway.models.check import check
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import pad, tokenize
from tests.tiny import FAMILIES, SENTENCES, tiny_model, tiny_tokenizer

VARIED = {
    "opt-350m": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 16}),
    "opt-without-final-norm": ("opt", {"_remove_final_layer_norm": True}),
    "pythia-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "falcon-rw": ("falcon", {"parallel_attn": False, "alibi": True}),
    "falcon-40b": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon2": (
        "falcon",
        {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "num_kv_heads": 2},
    ),
    "stablelm-2": ("stablelm", {"use_parallel_residual": True}),
    "albert-groups": ("albert", {"num_hidden_groups": 2, "num_hidden_layers": 4}),
    "gemma3-softcap": ("gemma3_text", {"final_logit_softcapping": 5.0}),
    "gemma2-hard-softcap": ("gemma2", {"final_logit_softcapping": 0.5}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "gpt2-untied": ("gpt2", {"tie_word_embeddings": False}),
    "bigger-vocabulary": ("phi", {"vocab_size": 512}),
}


def plain_model(folder, kind):
    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    return auto.from_pretrained(folder, attn_implementation="eager").eval()


def test_every_row_has_a_tiny_model_and_every_tiny_model_a_row() -> None:
    assert set(FAMILIES) == set(ANATOMIES)
    assert {name: row.kind for name, row in FAMILIES.items()} == {
        name: row.kind for name, row in ANATOMIES.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models_are_tiny(family: str) -> None:
    model = tiny_model(family, tiny_tokenizer(FAMILIES[family].style))
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


@pytest.mark.parametrize("family", ANATOMIES)
def test_every_layer_and_the_logits_equal_plain_transformers(family, lm_of, folder_of) -> None:
    lm = lm_of(family)
    plain = plain_model(folder_of(family), lm.kind)
    for row in tokenize(lm, SENTENCES[:3], limit=40).rows:
        ids, mask = pad([row], lm.pad_id)
        with torch.no_grad():
            want = plain(ids, output_hidden_states=True)
            got = collect_states(lm, ids, mask)
            logits = lm.unembed(lm.final_norm(got.layers[lm.layers]))
            body = plain.base_model(ids).last_hidden_state
        assert len(want.hidden_states) == lm.layers + 1
        for layer in range(lm.layers):
            close(got.layers[layer], want.hidden_states[layer])
        close(lm.final_norm(got.layers[lm.layers]), body)
        close(logits, want.logits)


@pytest.mark.parametrize("family", ANATOMIES)
def test_every_row_passes_every_law_with_the_default_kernel(family, lm_of) -> None:
    report = check(lm_of(family, attention="sdpa"))
    report.need_passed()
    assert len(report.checks) == {"causal": 10, "masked": 11}[report.kind]


@pytest.mark.parametrize("name", VARIED)
def test_variants_of_a_family_pass_every_law(name, lm_of) -> None:
    family, overrides = VARIED[name]
    check(lm_of(family, **overrides)).need_passed()


def test_every_variant_row_is_tried_above() -> None:
    tried = {(f, field, repr(v)) for f, over in VARIED.values() for field, v in over.items()}
    for family, variants in VARIANTS.items():
        for variant in variants:
            assert (family, variant.field, repr(variant.value)) in tried


def test_an_unknown_family_has_no_row() -> None:
    assert anatomy_of("a-family-from-the-future", object()) is None


def close(ours: torch.Tensor, plain: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest value."""
    assert ours.shape == plain.shape
    assert float((ours - plain).abs().max()) <= 1e-5 * float(plain.abs().max())
