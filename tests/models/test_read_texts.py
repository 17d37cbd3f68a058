"""lm.read: one vector per text and layer, in the order of the texts."""

import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.models.read_texts import parse_layers
from cutaway.pool import pooler
from tests.tiny import SENTENCES


def test_reading_equals_plain_transformers_text_by_text(lm) -> None:
    got = lm.read(SENTENCES, layers="0,2", pool=["last", "mean"])
    for i, text in enumerate(SENTENCES):
        row = lm.tokenizer(text, return_tensors="pt", truncation=True, max_length=lm.context)
        hidden = lm.module.base_model(**row, output_hidden_states=True).hidden_states
        for layer in (0, 2):
            torch.testing.assert_close(got["last"][layer][i], hidden[layer][0, -1])
            torch.testing.assert_close(got["mean"][layer][i], hidden[layer][0].mean(0))


def test_one_pooler_gives_layers_several_give_poolers(lm) -> None:
    one = lm.read(SENTENCES[:2], pool="mean")
    many = lm.read(SENTENCES[:2], pool=["mean"])
    assert list(one) == [0, 1, 2, 3]
    assert list(many) == ["mean"]
    assert torch.equal(one[3], many["mean"][3])
    assert torch.equal(lm.read(SENTENCES[:2], pool=pooler("mean"))[3], one[3])


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_batches_of_any_size_give_the_same(batch_tokens, lm) -> None:
    whole = lm.read(SENTENCES, layers=3)
    some = lm.read(SENTENCES, layers=3, batch_tokens=batch_tokens)
    torch.testing.assert_close(some[3], whole[3])


def test_what_is_read_can_be_trained_on(lm) -> None:
    states = lm.read(SENTENCES[:2], layers=1)[1]
    probe = torch.nn.Linear(lm.width, 2)
    probe(states).sum().backward()
    assert float(probe.weight.grad.abs().sum()) > 0


def test_attention_pooling_weighs_by_what_one_token_looks_at(lm_of) -> None:
    for family, looker in (("gpt2", -1), ("bert", 0)):
        lm = lm_of(family)
        row = lm.tokenizer(SENTENCES[0], return_tensors="pt")
        plain = lm.module.base_model(**row, output_attentions=True, output_hidden_states=True)
        for name, weights in (
            ("attn", plain.attentions[1].mean(1)),
            ("attn:2", plain.attentions[1][:, 2]),
        ):
            want = weights[0, looker] @ plain.hidden_states[2][0]
            got = lm.read([SENTENCES[0]], layers=2, pool=name)[2][0]
            torch.testing.assert_close(got, want)
    even = lm.read([SENTENCES[0]], layers=0, pool="attn")[0]
    torch.testing.assert_close(even, lm.read([SENTENCES[0]], layers=0, pool="mean")[0])


def test_mask_pooling_reads_the_mask_token(lm_of) -> None:
    lm = lm_of("bert")
    row = lm.tokenizer("the [MASK] fox", return_tensors="pt")
    at = row["input_ids"][0].tolist().index(lm.tokenizer.mask_token_id)
    want = lm.module.base_model(**row, output_hidden_states=True).hidden_states[1][0, at]
    torch.testing.assert_close(lm.read(["the [MASK] fox"], layers=1, pool="mask")[1][0], want)
    with pytest.raises(BadSpec, match="mask token"):
        lm_of("gpt2").read(["the fox"], pool="mask")


def test_pairs_are_read_as_plain_transformers_reads_them(lm_of) -> None:
    lm = lm_of("bert")
    row = lm.tokenizer("a quick fox", "the lazy dog", return_tensors="pt")
    want = lm.module.base_model(**row).last_hidden_state[0, 0]
    got = lm.read(["a quick fox"], pairs=["the lazy dog"], layers=3, pool="first")[3][0]
    torch.testing.assert_close(got, want)


def test_half_precision_stays_half(folder_of, lm_of) -> None:
    lm = lm_of("gpt2", dtype="bfloat16")
    assert lm.read(SENTENCES[:1], layers=0)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("layers", "want"), [("all", [0, 1, 2, 3]), (2, [2]), ([3, 0], [0, 3]), ("1, 3", [1, 3])]
)
def test_layers_in_every_form(layers, want, lm) -> None:
    assert parse_layers(lm, layers) == want


@pytest.mark.parametrize("layers", ["none", "1-3", 4, -1, [0, 9]])
def test_layers_that_cannot_be_are_refused(layers, lm) -> None:
    with pytest.raises(BadSpec):
        parse_layers(lm, layers)


def test_wrong_requests_are_refused(lm) -> None:
    with pytest.raises(UnknownName, match="mean"):
        lm.read(SENTENCES, pool="maen")
    with pytest.raises(BadSpec, match=r"0\.\.3"):
        lm.read(SENTENCES, layers=1, pool="attn:9")


def test_what_is_no_text_is_refused_and_a_generator_is_read(lm_of) -> None:
    lm = lm_of("gpt2")
    with pytest.raises(BadData, match="a text or a list of texts, got None"):
        lm.read(None)
    with pytest.raises(BadData, match="text 2: 3 is not a list of messages"):
        lm.read(["a", 3])
    states = lm.read((text for text in ["a", "b"]), layers=[0])
    assert len(states[0]) == 2
