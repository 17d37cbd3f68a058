"""The facts of an LM are those of its module and tokenizer."""

from types import SimpleNamespace

import pytest

from cutaway.core.errors import BadModel
from cutaway.models import assemble
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.assemble import assemble_lm


def assembled(lm, **other):
    facts = {"name": "m", "digest": "d", "dtype": "float32", "device": "cpu", "attention": "eager"}
    missing = other.pop("missing", [])
    row = other.pop("row", lm.anatomy)
    return assemble_lm(lm.module, lm.tokenizer, lm.kind, row, missing, **(facts | other))


def test_the_facts_are_those_of_module_and_tokenizer(lm) -> None:
    made = assembled(lm, notes=("converted",))
    for name in ("family", "layers", "width", "vocab", "parameters", "context", "tied", "kind"):
        assert getattr(made, name) == getattr(lm, name), name
    assert (made.name, made.digest, made.has_head) == ("m", "d", True)
    assert made.notes[0] == "converted"


def test_a_kernel_that_was_not_used_is_noted(lm) -> None:
    assert any("'sdpa' isn't available" in note for note in assembled(lm, attention="sdpa").notes)


def test_weights_that_are_missing_in_the_head_leave_no_head_and_in_the_body_no_model(lm_of) -> None:
    bert = lm_of("bert")
    assert not assembled(bert, missing=["cls.predictions.bias"]).has_head
    with pytest.raises(BadModel, match="lacks 1 weights"):
        assembled(bert, missing=["bert.encoder.layer.0.output.dense.weight"])


def test_a_family_without_a_row_gets_a_proposed_anatomy(lm_of) -> None:
    made = assembled(lm_of("llama"), row=None)
    assert made.anatomy.proposed
    assert made.anatomy.blocks == ANATOMIES["llama"].blocks


@pytest.mark.parametrize(
    ("positions", "tokenizer_limit", "context"),
    [(64, 10**30, 64), (64, 32, 32), (None, 128, 128), (None, 10**30, 2048)],
)
def test_the_context_is_what_model_and_tokenizer_both_allow(
    positions, tokenizer_limit, context
) -> None:
    config = SimpleNamespace(max_position_embeddings=positions)
    tokenizer = SimpleNamespace(model_max_length=tokenizer_limit)
    assert assemble._context(config, tokenizer, ANATOMIES["gpt2"]) == context


def test_unused_rows_of_the_position_table_do_not_count() -> None:
    config = SimpleNamespace(max_position_embeddings=514)
    tokenizer = SimpleNamespace(model_max_length=10**30)
    assert assemble._context(config, tokenizer, ANATOMIES["roberta"]) == 512
