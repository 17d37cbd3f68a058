"""The reference of the checks is what plain transformers returns."""

import torch

from cutaway.models.plain_pass import plain_pair, plain_pass


def test_a_plain_pass_is_one_call_of_the_model(lm) -> None:
    ids = torch.arange(5, 12)[None]
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        got = plain_pass(lm, ids, mask)
        out = lm.module(input_ids=ids, output_hidden_states=True)
        body = lm.module.base_model(input_ids=ids).last_hidden_state
    assert len(got.layers) == lm.layers + 1
    assert torch.equal(got.logits, out.logits)
    assert torch.equal(got.last, body)


def test_a_pair_has_the_tokenizers_token_types_unless_the_model_has_none(lm_of) -> None:
    two_types, one_type = lm_of("bert"), lm_of("bert", type_vocab_size=1)
    with torch.no_grad():
        row = two_types.tokenizer("one", "two", return_tensors="pt")
        assert int(row["token_type_ids"].max()) == 1
        plain = two_types.body(**row).last_hidden_state
        assert torch.equal(plain_pair(two_types, "one", "two"), plain)
        row = one_type.tokenizer("one", "two", return_tensors="pt")
        del row["token_type_ids"]
        plain = one_type.body(**row).last_hidden_state
        assert torch.equal(plain_pair(one_type, "one", "two"), plain)
