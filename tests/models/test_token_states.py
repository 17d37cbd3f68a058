"""States per token: those of the plain model, with the tokens and characters they belong to."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.models.hooks import collect_states
from cutaway.models.sites import Site
from cutaway.models.token_states import parse_sites
from cutaway.models.tokens import pad, tokenize

TEXTS = ["The quick brown fox", "Yes.", "It rained all day, and the river rose"]


def test_every_token_has_the_state_of_the_plain_model(lm) -> None:
    read = lm.read(TEXTS, pool=None, layers="0,2", batch_tokens=12)
    assert len(read) == len(TEXTS)
    for i, text in enumerate(TEXTS):
        row = lm.tokenizer(text)["input_ids"]
        assert read.ids[i] == row
        assert read.tokens[i] == lm.tokenizer.convert_ids_to_tokens(row)
        with torch.no_grad():
            plain = lm.module(torch.tensor([row]), output_hidden_states=True).hidden_states
        for layer in (0, 2):
            torch.testing.assert_close(read[layer][i], plain[layer][0], rtol=1e-5, atol=1e-6)


def test_pooling_them_gives_what_the_poolers_give(lm) -> None:
    read, mean = lm.read(TEXTS, pool=None), lm.read(TEXTS, pool="mean")
    for layer in range(lm.layers + 1):
        states, mask = read.padded(layer)
        ours = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        torch.testing.assert_close(ours, mean[layer], rtol=1e-5, atol=1e-6)
        assert mask.sum(1).tolist() == [len(row) for row in read.ids]


def test_offsets_are_the_characters_of_the_tokens(lm) -> None:
    read = lm.read(TEXTS, pool=None, layers=0, prompt=" so it was")
    for text, row, offsets in zip(TEXTS, read.ids, read.offsets, strict=True):
        joined = f"{text} so it was"
        pieces = [joined[a:b] for a, b in offsets if b > a]
        assert "".join(pieces).replace(" ", "") == joined.replace(" ", "")
        special = set(lm.tokenizer.all_special_ids)
        assert all((a == b) == (t in special) for t, (a, b) in zip(row, offsets, strict=True))


def test_truncated_texts_keep_the_offsets_of_the_tokens_that_stay(lm) -> None:
    full, cut = (lm.read(TEXTS[2], pool=None, layers=0, limit=n) for n in (None, 6))
    assert len(cut.ids[0]) == 6
    where = dict(zip(full.offsets[0], full.ids[0], strict=False))
    pairs = zip(cut.ids[0], cut.offsets[0], strict=True)
    assert all(where[span] == token for token, span in pairs if span != (0, 0))


def test_sites_inside_the_blocks_are_read_with_them(lm) -> None:
    read = lm.read(TEXTS, pool=None, layers="1,3", sites="attn,mlp.in,2.norm1")
    wanted = {Site(1, "attn"), Site(3, "attn"), Site(1, "mlp", "in"), Site(3, "mlp", "in")}
    assert set(read.sites) == wanted | {Site(2, "norm1")}
    rows = tokenize(lm, TEXTS).rows
    with torch.no_grad():
        plain = collect_states(lm, *pad(rows, lm.pad_id), [], [Site(3, "attn")]).sites
    for i, row in enumerate(rows):
        ours, theirs = read[3, "attn"][i], plain[Site(3, "attn")][i, : len(row)]
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert read[1, "mlp", "in"][0].shape == (len(rows[0]), lm.width)


def test_one_string_is_one_text_pooled_or_not(lm) -> None:
    assert lm.read(TEXTS[0], pool=None).ids == [lm.tokenizer(TEXTS[0])["input_ids"]]
    one, many = lm.read(TEXTS[0]), lm.read(TEXTS[:1])
    assert all(torch.equal(one[layer], many[layer]) for layer in many)
    paired = lm.read(TEXTS[0], pairs=TEXTS[1], layers=1)
    assert torch.equal(paired[1], lm.read(TEXTS[:1], pairs=TEXTS[1:2], layers=1)[1])


def test_nothing_is_read_of_no_texts(lm) -> None:
    read = lm.read([], pool=None, layers=1)
    assert len(read) == 0
    assert read.padded(1)[0].numel() == 0


def test_what_is_no_site_is_refused(lm) -> None:
    for wrong in ("heads", "x.attn", "attn.side", "99.attn"):
        with pytest.raises(BadSpec, match=r"not a site|out of range"):
            parse_sites(lm, wrong, [1])
    with pytest.raises(BadSpec, match="need pool=None"):
        lm.read(TEXTS, sites="attn")
    with pytest.raises(BadSpec, match="was not read"):
        lm.read(TEXTS, pool=None, layers=0)[2]
