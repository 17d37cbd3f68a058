"""Windows of a long text are combined by the rule in the pooler's row."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadSpec, UnknownName
from cutaway.core.textset import TextSet
from cutaway.extract.activations import extract
from cutaway.extract.forward_pass import WindowCombiner, need_window_poolers
from cutaway.extract.request import ExtractionRequest, TokenRows, build_token_rows
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import pad, tokenize
from cutaway.pool import POOLERS, Pooler
from tests.tiny import SENTENCES


def test_windows_lose_nothing_and_a_short_text_is_itself(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    long = TextSet("long", (" ".join(SENTENCES * 4), SENTENCES[0]))
    ask = ExtractionRequest(layers=(1,), pools=("mean", "last", "first", "max"), window=16)
    fed = build_token_rows(lm, long, ask)
    whole = tokenize(lm, long.texts, limit=10**6).rows
    for owner, row in enumerate(whole):
        mine = [i for i in range(len(fed.rows)) if fed.text_index[i] == owner]
        assert [t for i in mine for t in fed.rows[i][fed.first_counted[i] :]] == row
    got = extract(lm, long, ask)
    plain = extract(
        lm, TextSet("s", (SENTENCES[0],)), ExtractionRequest(layers=(1,), pools=("mean", "last"))
    )
    if len(whole[1]) <= 16:
        torch.testing.assert_close(got.column(1, "mean")[1], plain.column(1, "mean")[0])
    assert got.num_truncated == 0


def test_windowed_mean_weighs_every_token_once(tiny_lm):
    lm, long = tiny_lm("gpt2"), TextSet("long", (" ".join(SENTENCES * 2),))
    ask = ExtractionRequest(layers=(0,), pools=("mean", "max", "last"), window=16)
    got = extract(lm, long, ask)
    fed = build_token_rows(lm, long, ask)
    pieces = []
    for row, fresh in zip(fed.rows, fed.first_counted, strict=True):
        hidden = collect_states(lm, *pad([row], lm.pad_id), [0]).layers[0][0]
        pieces.append(hidden[fresh:])
    tokens = torch.cat(pieces)
    torch.testing.assert_close(got.column(0, "mean")[0], tokens.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got.column(0, "max")[0], tokens.amax(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got.column(0, "last")[0], tokens[-1], atol=1e-5, rtol=1e-5)


def test_a_pooler_without_meaning_over_windows_is_refused(tiny_lm, texts):
    with pytest.raises(BadSpec, match="sliding windows"):
        extract(tiny_lm("gpt2"), texts, ExtractionRequest(layers=(1,), pools=("q0.4",), window=16))


@pytest.mark.parametrize("name", [name for name, row in POOLERS.items() if row.window_rule])
def test_every_window_rule_gives_what_the_pooler_gives_for_the_uncut_text(name):
    lengths = [4, 4, 2]
    hidden = torch.randn(1, sum(lengths), 5, dtype=torch.float64)
    row = POOLERS[name]
    pieces = hidden.split(lengths, dim=1)
    pooled = [row(piece, torch.ones(piece.shape[:2], dtype=torch.bool)) for piece in pieces]
    combined = row.window_rule(torch.cat(pooled), torch.tensor(lengths, dtype=torch.float64))
    whole = row(hidden, torch.ones(hidden.shape[:2], dtype=torch.bool))
    torch.testing.assert_close(combined, whole[0])


def test_a_users_pooler_is_treated_by_its_row_and_not_by_its_name(monkeypatch):
    monkeypatch.setitem(POOLERS, "meanish", Pooler("meanish", POOLERS["mean"].function))
    with pytest.raises(BadSpec, match="'meanish' can't be used with sliding windows"):
        need_window_poolers(["mean", "meanish"])
    rule = POOLERS["mean"].window_rule
    row = Pooler("meanish", POOLERS["mean"].function, window_rule=rule)
    monkeypatch.setitem(POOLERS, "meanish", row)
    need_window_poolers(["mean", "meanish"])
    with pytest.raises(UnknownName, match="'maen'"):
        need_window_poolers(["maen"])


def test_a_text_is_passed_on_once_all_its_windows_are_there_in_any_order():
    none = [np.zeros(0, np.int64)] * 3
    rows = TokenRows([[1] * 4] * 3, np.array([0, 1, 0]), np.array([0, 0, 2]), none, np.zeros(2))
    done = []
    combiner = WindowCombiner(rows, lambda texts, values: done.append((texts.tolist(), values)))
    combiner(np.array([2]), {"1/mean": torch.tensor([[3.0]])})
    assert done == []
    combiner(np.array([1, 0]), {"1/mean": torch.tensor([[7.0], [0.0]])})
    texts, values = done[0]
    assert texts == [1, 0]
    # 4 counted tokens of the first window, 2 of the second: (4 * 0 + 2 * 3) / 6.
    torch.testing.assert_close(values["1/mean"], torch.tensor([[7.0], [1.0]]))
