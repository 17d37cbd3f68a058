"""An open model: its head, its facts, its identity."""

import inspect
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
import torch

from cutaway.core.errors import Missing
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM, LOGIT_OPERATIONS, model_facts, optional_module
from cutaway.models.start_token import tokens_in_front
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES


def last_layer(lm):
    ids, mask = pad(tokenize(lm, SENTENCES[:2], limit=20).rows, lm.pad_id)
    with torch.no_grad():
        got = collect_states(lm, ids, mask, [lm.layers], logits=True)
    return got.layers[lm.layers][mask], got.logits[mask]


@pytest.mark.parametrize("family", ANATOMIES)
def test_head_features_times_the_output_embedding_are_the_logits(family, lm_of) -> None:
    lm = lm_of(family)
    hidden, logits = last_layer(lm)
    phi, bias = lm.output_embedding
    features = lm.head_features(hidden)
    ours = torch.nn.functional.linear(features, phi, bias)
    assert phi.shape == (lm.vocab, features.shape[-1])
    # A cap or a factor behind the decoder keeps the order of the words.
    if lm.anatomy.logit_operations:
        assert torch.equal(ours.argmax(-1), logits.argmax(-1))
    else:
        torch.testing.assert_close(ours, logits)


def test_states_of_any_shape_can_be_unembedded(lm) -> None:
    hidden, logits = last_layer(lm)
    one = lm.unembed(lm.final_norm(hidden[0]))
    torch.testing.assert_close(one, logits[0])
    torch.testing.assert_close(lm.head_features(hidden[None])[0], lm.head_features(hidden))


def test_unembedding_lets_gradients_through(lm) -> None:
    hidden = last_layer(lm)[0].requires_grad_(True)
    lm.unembed(lm.final_norm(hidden)).logsumexp(-1).sum().backward()
    assert float(hidden.grad.abs().sum()) > 0


def test_a_model_is_frozen_in_every_sense(lm) -> None:
    with pytest.raises(FrozenInstanceError):
        lm.name = "other"
    assert not lm.module.training
    assert not any(p.requires_grad for p in lm.params().values())


def test_tied_weights_appear_once(lm_of) -> None:
    tied, untied = lm_of("llama", tie_word_embeddings=True), lm_of("llama")
    assert tied.tied
    assert not untied.tied
    assert set(untied.params()) - set(tied.params()) == {"lm_head.weight"}


def test_without_a_head_there_are_no_logits(lm_of) -> None:
    lm = replace(lm_of("bert"), has_head=False)
    hidden = torch.zeros(1, lm.width)
    for ask in (lm.unembed, lm.head_features, lambda _: lm.output_embedding):
        with pytest.raises(Missing, match="no language-model head"):
            ask(hidden)
    assert lm.final_norm(hidden).shape == hidden.shape


def test_an_optional_module_may_be_absent_another_may_not(lm) -> None:
    assert optional_module(lm.module, "nothing_here?") is None
    with pytest.raises(AttributeError):
        optional_module(lm.module, "nothing_here")


def test_read_shows_every_keyword_with_its_default() -> None:
    signature = inspect.signature(LM.read)
    assert list(signature.parameters)[2:] == [
        "layers", "pool", "sites", "pairs", "prompt", "limit", "batch_tokens",
    ]  # fmt: skip
    assert signature.parameters["layers"].default == "all"
    assert all(name in LM.read.__doc__ for name in signature.parameters if name != "self")


def test_every_logit_operation_is_monotonic_and_only_applied_if_configured(lm) -> None:
    logits = torch.linspace(-50, 50, 11)
    for operation in LOGIT_OPERATIONS.values():
        assert bool((operation(logits, 30.0).diff() > 0).all())
    softcapped = LOGIT_OPERATIONS["softcap"](logits, 30.0)
    assert float(softcapped.abs().max()) < 30.0
    absent = replace(lm, anatomy=replace(lm.anatomy, logit_operations=(("softcap", "not_there"),)))
    assert torch.equal(absent.transform_logits(logits), logits)


def test_model_facts_are_those_of_the_model(lm) -> None:
    facts = model_facts(lm)
    assert facts.pop("start_tokens") == tokens_in_front(lm.tokenizer)
    assert facts.pop("warnings") == [asdict(one) for one in lm.warnings]
    assert list(facts) == ["name", "family", "layers", "width", "parameters", "digest", "bos"]
    assert all(value == getattr(lm, name) for name, value in facts.items())


def test_the_short_id_changes_with_everything_that_can_change_a_number(lm) -> None:
    changes = {
        "digest": "x", "tokenizer_digest": "x", "dtype": "bfloat16", "attention": "sdpa",
        "context": 3, "token_types": not lm.token_types,
    }  # fmt: skip
    ids = {lm.short_id, *(replace(lm, **{k: v}).short_id for k, v in changes.items())}
    assert len(ids) == 1 + len(changes)
    assert replace(lm, name="other", device="cuda").short_id == lm.short_id
