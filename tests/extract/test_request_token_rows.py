"""Texts become token rows: every token once, marks at ordinary tokens only."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest, build_token_rows
from cutaway.models.hooks import collect_states
from cutaway.models.start_token import with_bos
from cutaway.models.tokens import pad, tokenize


def test_a_prefix_cut_is_the_state_at_the_marked_position(tiny_lm, texts):
    lm, ask = (
        tiny_lm("llama"),
        ExtractionRequest(layers=(1,), pools=("marks",), input_mode="cut", seed=3),
    )
    values, offsets = extract(lm, texts, ask).tokens(1, "marks")
    assert offsets.tolist() == list(range(len(texts) + 1))
    for i, row in enumerate(tokenize(lm, texts.texts).rows):
        prefixes = [row[: end + 1] for end in range(len(row))]
        cut = [collect_states(lm, *pad([p], lm.pad_id), [1]).layers[1][0, -1] for p in prefixes]
        gaps = [float((values[i] - state).abs().max()) for state in cut]
        assert min(gaps) < 1e-5


def test_a_masked_position_holds_the_mask_token(tiny_lm, texts):
    lm, ask = (
        tiny_lm("bert"),
        ExtractionRequest(layers=(1,), pools=("marks", "mask"), input_mode="mask"),
    )
    fed = build_token_rows(lm, texts, ask)
    for row, marks in zip(fed.rows, fed.marks, strict=True):
        assert [row[i] for i in marks] == [lm.tokenizer.mask_token_id] * len(marks)
    got = extract(lm, texts, ask)
    torch.testing.assert_close(got.tokens(1, "marks")[0], got.column(1, "mask"))


def test_masking_needs_a_masked_model(tiny_lm, texts):
    with pytest.raises(BadSpec, match="no mask token"):
        extract(
            tiny_lm("llama"),
            texts,
            ExtractionRequest(layers=(1,), pools=("last",), input_mode="mask"),
        )


def test_cut_texts_are_counted(tiny_lm):
    lm = tiny_lm("gpt2")
    long = TextSet("long", ("word " * 10_000, "short"))
    got = extract(lm, long, ExtractionRequest(layers=(1,)))
    assert got.num_truncated == 1
    assert got.truncated[0] > 9_000
    assert got.truncated[1] == 0


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_marks_are_seeded_sorted_and_at_ordinary_tokens(family, tiny_lm, texts):
    lm = tiny_lm(family)
    request = ExtractionRequest(layers=(1,), pools=("marks",), input_mode="cut", positions=3)
    one, same = (build_token_rows(lm, texts, request) for _ in range(2))
    other = build_token_rows(
        lm, texts, ExtractionRequest((1,), ("marks",), input_mode="cut", positions=3, seed=1)
    )
    special = set(lm.tokenizer.all_special_ids)
    plain = tokenize(lm, texts.texts).rows
    for marks, again, row in zip(one.marks, same.marks, plain, strict=True):
        assert marks.tolist() == again.tolist() == sorted(set(marks.tolist()))
        assert not special & {row[i] for i in marks}
    assert any(a.tolist() != b.tolist() for a, b in zip(one.marks, other.marks, strict=True))


def test_a_text_of_special_tokens_only_can_not_be_marked(tiny_lm):
    request = ExtractionRequest(layers=(1,), pools=("marks",), input_mode="cut")
    with pytest.raises(BadData, match="Text 1 has only special tokens"):
        build_token_rows(tiny_lm("bert"), TextSet("empty", ("fox", "")), request)


@pytest.mark.parametrize("window", [1, 10**6])
def test_a_window_must_fit_the_context(window, tiny_lm, texts):
    with pytest.raises(BadSpec, match="window must be 2 to"):
        build_token_rows(tiny_lm("gpt2"), texts, ExtractionRequest((1,), ("mean",), window=window))


@pytest.mark.parametrize("window", [2, 3, 7, 16])
def test_windows_cover_every_token_once_with_half_a_window_of_context(window, tiny_lm, texts):
    lm = tiny_lm("gpt2")
    rows = build_token_rows(lm, texts, ExtractionRequest((1,), ("mean",), window=window))
    for text, tokens in enumerate(tokenize(lm, texts.texts, limit=10**6).rows):
        mine = np.flatnonzero(rows.text_index == text)
        counted = [t for i in mine for t in rows.rows[i][rows.first_counted[i] :]]
        assert counted == tokens
        assert all(rows.first_counted[i] >= window // 2 for i in mine[1:])
        assert all(len(rows.rows[i]) <= window for i in mine)


@pytest.mark.parametrize(("family", "front"), [("llama", 1), ("bert", 1), ("gpt2", 0)])
def test_later_windows_begin_with_the_start_token_which_counts_once(family, front, tiny_lm, texts):
    lm = tiny_lm(family)
    rows = build_token_rows(lm, texts, ExtractionRequest((1,), ("mean",), window=7))
    assert len(rows.rows) > len(texts.texts)
    for text, tokens in enumerate(tokenize(lm, texts.texts, limit=10**6).rows):
        mine = np.flatnonzero(rows.text_index == text)
        assert all(rows.rows[i][:front] == tokens[:front] for i in mine)
        counted = [t for i in mine for t in rows.rows[i][rows.first_counted[i] :]]
        assert counted == tokens
        # At least half of the window without the start token is context.
        assert all(rows.first_counted[i] >= front + (7 - front) // 2 for i in mine[1:])
        assert all(len(rows.rows[i]) <= 7 for i in mine)


def test_bos_add_reaches_every_window(tiny_lm, texts):
    lm = with_bos(tiny_lm("gpt2"), "add")
    rows = build_token_rows(lm, texts, ExtractionRequest((1,), ("mean",), window=7))
    assert {row[0] for row in rows.rows} == {lm.tokenizer.bos_token_id}
    with pytest.raises(BadSpec, match=r"window must be 3 to 64 tokens .* 1 of which begin every"):
        build_token_rows(lm, texts, ExtractionRequest((1,), ("mean",), window=2))
