"""The pooling visitor: heads at one token, attention weights from the eager kernel."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.extract.activations import extract
from cutaway.extract.forward_pass import HEAD_OUTPUTS, PoolingVisitor, visited_layers
from cutaway.extract.request import ExtractionRequest
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import pad, tokenize
from cutaway.pool import POOLERS, Pooler

FAMILIES = ("gpt2", "llama", "bert", "roberta")


@pytest.mark.parametrize("family", FAMILIES)
def test_final_features_and_next_token_agree_with_the_plain_logits(family, tiny_lm, texts):
    lm = tiny_lm(family)
    got = extract(
        lm, texts, ExtractionRequest(layers=(), pools=("last",), heads=tuple(HEAD_OUTPUTS))
    )
    weight, bias = lm.output_embedding
    rows = tokenize(lm, texts.texts).rows
    for i, row in enumerate(rows):
        ids, mask = pad([row], lm.pad_id)
        with torch.inference_mode():
            logits = lm.module(input_ids=ids, attention_mask=mask.long()).logits[0, -1].float()
        made = got.column("final")[i] @ weight.T + (0 if bias is None else bias)
        torch.testing.assert_close(made, logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(got.column("logz")[i, 0], logits.logsumexp(0), atol=1e-4, rtol=0)
        token, chance, _ = got.column("next")[i].tolist()
        assert int(token) == int(logits.argmax())
        assert chance == pytest.approx(float(logits.softmax(0).max()), abs=1e-4)


def test_attention_pooling_weighs_by_the_models_own_attention(tiny_lm, texts):
    lm = tiny_lm("gpt2", attention="eager")
    got = extract(lm, texts, ExtractionRequest(layers=(0, 1), pools=("attn", "attn:1", "mean")))
    torch.testing.assert_close(got.column(0, "attn"), got.column(0, "mean"))
    for i, row in enumerate(tokenize(lm, texts.texts).rows):
        seen = collect_states(lm, *pad([row], lm.pad_id), [1], attention=True)
        weights = seen.attention[1][0, 1, -1]
        expected = (weights[:, None] * seen.layers[1][0]).sum(0) / weights.sum()
        torch.testing.assert_close(got.column(1, "attn:1")[i], expected, atol=1e-5, rtol=1e-4)


def test_a_users_pooler_that_needs_attention_is_read_with_the_eager_kernel(
    tiny_lm, texts, monkeypatch
):
    """Whatever its name: the states of an sdpa model differ from eager ones in the last bits."""
    monkeypatch.setitem(
        POOLERS, "weighted", Pooler("weighted", POOLERS["attn"].function, "attention")
    )
    sdpa, eager = tiny_lm("gpt2"), tiny_lm("gpt2", attention="eager")
    request = ExtractionRequest(layers=(1,), pools=("weighted", "mean"), prompt=" weighted")
    stored = extract(sdpa, texts, request)
    assert stored.table.key["attention"] == "eager"
    plain = extract(eager, texts, ExtractionRequest((1,), ("attn", "mean"), prompt=" weighted"))
    assert torch.equal(stored.column(1, "weighted"), plain.column(1, "attn"))
    assert torch.equal(stored.column(1, "mean"), plain.column(1, "mean"))
    assert sdpa.module.config._attn_implementation == "sdpa", "the kernel is restored"


@pytest.mark.parametrize("name", ["mean", "max", "attn", "quadmean"])
def test_a_head_needs_a_pooler_of_a_single_token(name, tiny_lm, texts, monkeypatch):
    monkeypatch.setitem(POOLERS, "quadmean", Pooler("quadmean", POOLERS["mean"].function))
    request = ExtractionRequest(layers=(), pools=(name,), heads=("final",), prompt=" head")
    with pytest.raises(BadSpec, match=f"one token: pool must be one of first, last.*{name!r}"):
        extract(tiny_lm("gpt2"), texts, request)


@pytest.mark.parametrize("name", ["first", "q0.5", "pick"])
def test_a_single_token_pooler_of_any_name_can_be_used_with_a_head(
    name, tiny_lm, texts, monkeypatch
):
    row = Pooler("pick", POOLERS["last"].function, single_token=True)
    monkeypatch.setitem(POOLERS, "pick", row)
    lm = tiny_lm("gpt2")
    got = extract(lm, texts, ExtractionRequest((lm.layers,), (name,), heads=("final",)))
    expected = lm.head_features(got.column(lm.layers, name))
    torch.testing.assert_close(got.column("final", name), expected)


def test_a_pass_visits_the_layers_that_any_visitor_asks_for(tiny_lm):
    lm, request = tiny_lm("gpt2"), ExtractionRequest(layers=(2, 0), heads=("logz",))
    one = PoolingVisitor(lm, request, {"2/last": ("2", "last")}, print, print)
    two = PoolingVisitor(lm, request, {"logz/last": ("logz", "last")}, print, print)
    assert visited_layers([one, two]) == (2, lm.layers)
    assert visited_layers([]) == ()
