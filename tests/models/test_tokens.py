"""Tokens: what the tokenizer gives alone, cut where it should be, padded on either side."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec
from cutaway.models import tokens
from cutaway.models.tokens import make_token_type_ids, pad, tokenize
from tests.tiny import SENTENCES

NO_FIXTURE_CHECK = [HealthCheck.function_scoped_fixture]
LONG = " ".join(SENTENCES * 8)
PROMPT = " This movie is "


def test_rows_are_what_the_tokenizer_gives_each_text_alone(lm) -> None:
    rows = tokenize(lm, SENTENCES).rows
    assert rows == [lm.tokenizer(text)["input_ids"] for text in SENTENCES]


@settings(max_examples=40, deadline=None, suppress_health_check=NO_FIXTURE_CHECK)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text_becomes_a_row_of_known_tokens(texts, lm) -> None:
    got = tokenize(lm, texts)
    assert len(got.rows) == len(texts) == len(got.truncated)
    for row in got.rows:
        assert 1 <= len(row) <= lm.context
        assert all(0 <= token < lm.vocab for token in row)


@pytest.mark.parametrize("cut", ["right", "left"])
def test_long_texts_lose_tokens_on_the_chosen_side_only(cut, lm, monkeypatch) -> None:
    monkeypatch.setattr(lm.tokenizer, "truncation_side", cut)
    whole = lm.tokenizer(LONG, add_special_tokens=False)["input_ids"]
    got = tokenize(lm, [LONG, SENTENCES[0]], limit=20, truncation=cut)
    want = lm.tokenizer(LONG, truncation=True, max_length=20)["input_ids"]
    assert got.rows[0] == want
    assert got.truncated.tolist() == [len(lm.tokenizer(LONG)["input_ids"]) - 20, 0]
    end = [t for t in got.rows[0] if t not in lm.tokenizer.all_special_ids]
    assert end == (whole[: len(end)] if cut == "right" else whole[-len(end) :])


def test_the_context_is_the_limit_unless_said(lm) -> None:
    assert len(tokenize(lm, [LONG]).rows[0]) == lm.context == 64


def test_a_prompt_is_tokenised_together_with_its_text(lm) -> None:
    got = tokenize(lm, SENTENCES, prompt=PROMPT)
    assert got.rows == [lm.tokenizer(text + PROMPT)["input_ids"] for text in SENTENCES]


@pytest.mark.parametrize("limit", [14, 30])
@pytest.mark.parametrize("cut", ["right", "left"])
def test_a_prompt_is_never_cut(limit, cut, lm) -> None:
    whole = tokenize(lm, [LONG], prompt=PROMPT, limit=10**6).rows[0]
    row = tokenize(lm, [LONG], prompt=PROMPT, limit=limit, truncation=cut).rows[0]
    body = [t for t in row if t not in lm.tokenizer.all_special_ids]
    assert len(row) == limit
    # What is left is the end of text + prompt: the beginning of the document went.
    plain = [t for t in whole if t not in lm.tokenizer.all_special_ids]
    assert body == plain[-len(body) :]
    assert lm.tokenizer.decode(body).rstrip().lower().endswith("this movie is")


def test_ten_thousand_tokens_and_a_prompt_end_in_the_prompt(lm) -> None:
    text = "word " * 10_000
    got = tokenize(lm, [text], prompt=PROMPT)
    assert len(got.rows[0]) == lm.context
    assert lm.tokenizer.decode(got.rows[0], skip_special_tokens=True).rstrip().endswith("is")
    assert got.truncated[0] > 9_000


def test_a_prompt_longer_than_the_limit_is_refused(lm) -> None:
    with pytest.raises(BadSpec, match="max_tokens 3"):
        tokenize(lm, [LONG], prompt=PROMPT, limit=3)


def test_masked_models_take_pairs_in_their_own_form(lm_of) -> None:
    lm = lm_of("bert")
    got = tokenize(lm, ["the fox"], pairs=["the dog"])
    assert got.rows == [lm.tokenizer("the fox", "the dog")["input_ids"]]


def test_causal_models_take_pairs_joined_by_a_line_break(lm_of) -> None:
    lm = lm_of("llama")
    got = tokenize(lm, ["the fox"], pairs=["the dog"], prompt=" so")
    assert got.rows == [lm.tokenizer("the fox\nthe dog so")["input_ids"]]


def test_of_a_long_pair_the_longer_text_is_cut(lm_of) -> None:
    lm = lm_of("bert")
    short = lm.tokenizer("the fox", add_special_tokens=False)["input_ids"]
    got = tokenize(lm, ["the fox"], pairs=[LONG], limit=20)
    want = lm.tokenizer("the fox", LONG, truncation="longest_first", max_length=20)["input_ids"]
    assert got.rows[0] == want
    assert got.rows[0][1 : 1 + len(short)] == short


def test_pairs_and_texts_must_be_as_many(lm) -> None:
    with pytest.raises(BadData, match="2 texts but 1"):
        tokenize(lm, ["a", "b"], pairs=["c"])


def test_an_empty_text_becomes_the_start_or_end_token(lm_of) -> None:
    got = tokenize(lm_of("gpt2"), ["", "fox"])
    assert got.rows[0] == [lm_of("gpt2").tokenizer.eos_token_id]
    assert got.empty.tolist() == [True, False]
    assert tokenize(lm_of("bert"), [""]).empty.tolist() == [False]


def test_an_empty_text_is_refused_when_nothing_can_stand_for_it(lm_of, folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("gpt2"), check=False)
    lm.tokenizer.bos_token = lm.tokenizer.eos_token = None
    with pytest.raises(BadData, match="Text 1 is empty"):
        tokenize(lm, ["fox", ""])


def test_no_texts_give_no_rows(lm) -> None:
    assert tokenize(lm, []).rows == []


def test_a_side_that_is_no_side_is_refused(lm) -> None:
    with pytest.raises(BadSpec, match="'middle'"):
        tokenize(lm, ["a"], truncation="middle")


@given(rows=st.lists(st.lists(st.integers(1, 99), max_size=6), min_size=1, max_size=5))
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_keeps_every_token_and_marks_the_rest(rows, side) -> None:
    ids, mask = pad(rows, 0, side)
    assert [ids[i][mask[i]].tolist() for i in range(len(rows))] == rows
    assert ids[~mask].tolist() == [0] * int((~mask).sum())
    assert ids.shape == (len(rows), max(map(len, rows)))
    for real in mask:
        order = real.long() if side == "left" else real.long().flip(0)
        assert torch.equal(order, order.sort().values)


@pytest.mark.parametrize("family", ["bert", "electra", "albert", "ernie"])
def test_token_types_are_the_tokenizers_for_pairs_and_single_texts(family, lm_of) -> None:
    lm = lm_of(family)
    assert lm.token_types
    for pair in ("the lazy dog", None):
        want = lm.tokenizer("a quick fox", pair, return_tensors="pt", return_token_type_ids=True)
        ids, mask = want["input_ids"], want["attention_mask"].bool()
        assert torch.equal(make_token_type_ids(lm, ids, mask), want["token_type_ids"])


@pytest.mark.parametrize("family", ["roberta", "distilbert", "gpt2"])
def test_families_without_token_types_get_none(family, lm_of) -> None:
    assert not lm_of(family).token_types


@pytest.mark.parametrize("cut", ["right", "left"])
@pytest.mark.parametrize("prompt", ["", PROMPT])
def test_of_a_very_long_text_only_what_can_be_kept_is_tokenised(
    cut, prompt, lm, monkeypatch
) -> None:
    """The same rows as from the whole text, and only a small part of it reaches the tokenizer."""
    text = " ".join(SENTENCES * 30)
    want = tokenize(lm, [text], prompt=prompt, limit=20, truncation=cut)
    monkeypatch.setattr("cutaway.models.tokens.MIN_CHARACTERS", 2_000)
    sizes, encode = [], tokens._encode
    monkeypatch.setattr(
        tokens,
        "_encode",
        lambda lm, one, *more: (sizes.append(len(one[0])), encode(lm, one, *more))[1],
    )
    got = tokenize(lm, [text], prompt=prompt, limit=20, truncation=cut)
    assert got.rows == want.rows and got.truncated[0] > 0
    assert sizes == [2_000] and len(text) > 3_000


def test_a_long_text_of_few_tokens_is_tokenised_whole(lm, monkeypatch) -> None:
    text = " " * 5_000 + SENTENCES[0]
    want = tokenize(lm, [text], limit=200)
    monkeypatch.setattr("cutaway.models.tokens.MIN_CHARACTERS", 2_000)
    monkeypatch.setattr("cutaway.models.tokens.CHARACTERS_PER_TOKEN", 1)
    if len(lm.tokenizer(" " * 2_000, add_special_tokens=False)["input_ids"]) <= 200:
        assert tokenize(lm, [text], limit=200).rows == want.rows
