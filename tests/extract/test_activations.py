"""Extraction gives what every text alone gives, is cached, and resumes after a kill."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import NoRoom
from cutaway.extract import activations
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.models.batches import TokenBudget
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import pad, tokenize

FAMILIES = ("gpt2", "llama", "bert", "roberta")
POOLS = ("first", "last", "mean", "max", "min", "q0.4", "cls")


def one_by_one(lm, texts, layer):
    """Every text alone through the plain model: its states at one layer."""
    for row in tokenize(lm, texts.texts, pairs=texts.pairs).rows:
        ids, mask = pad([row], lm.pad_id)
        with torch.inference_mode():
            yield collect_states(lm, ids, mask, [layer]).layers[layer], mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pool", POOLS)
def test_a_batch_gives_what_every_text_alone_gives(family, pool, tiny_lm, texts):
    from cutaway.pool import pooler

    lm = tiny_lm(family)
    got = extract(lm, texts, ExtractionRequest(layers=(0, 1, lm.layers), pools=(pool,)))
    for layer in (0, 1, lm.layers):
        alone = torch.cat([pooler(pool)(h, m) for h, m in one_by_one(lm, texts, layer)])
        torch.testing.assert_close(got.column(layer, pool), alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_order_and_budget_change_nothing(family, tiny_lm, texts, monkeypatch, tmp_path):
    lm, order = tiny_lm(family), np.random.default_rng(0).permutation(len(texts))
    ask = ExtractionRequest(layers=(lm.layers,), pools=("last", "mean"))
    plain = extract(lm, texts, ask)
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    for budget in (16, 4096):
        other = extract(lm, texts.take(order), ask, budget=TokenBudget(fixed=budget))
        for pool in ask.pools:
            torch.testing.assert_close(
                other.column(lm.layers, pool), plain.column(lm.layers, pool)[order],
                atol=1e-5, rtol=1e-5,
            )  # fmt: skip


def test_a_second_request_needs_no_forward(tiny_lm, texts, monkeypatch):
    lm, ask = tiny_lm("gpt2"), ExtractionRequest(layers=(0, 1), pools=("last",))
    first = extract(lm, texts, ask)
    monkeypatch.setattr(activations, "run_pass", None)
    again = extract(lm, texts, ask)
    assert again.stats is None
    assert torch.equal(first.column(1), again.column(1))


def test_a_request_for_more_computes_only_what_is_missing(tiny_lm, texts, monkeypatch):
    lm, asked = tiny_lm("gpt2"), []
    extract(lm, texts, ExtractionRequest(layers=(0, 1), pools=("last",)))
    real = activations.PoolingVisitor

    def spy(lm, ask, columns, *rest):
        asked.extend(columns)
        return real(lm, ask, columns, *rest)

    monkeypatch.setattr(activations, "PoolingVisitor", spy)
    extract(lm, texts, ExtractionRequest(layers=(0, 1, 2), pools=("last",)))
    assert asked == ["2/last"]


def test_all_tokens_come_ragged_and_in_order(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    values, offsets = extract(lm, texts, ExtractionRequest(layers=(1,), pools=("all",))).tokens(1)
    alone = list(one_by_one(lm, texts, 1))
    assert offsets.diff().tolist() == [h.shape[1] for h, _ in alone]
    expected = torch.cat([h[0] for h, _ in alone])
    torch.testing.assert_close(values, expected, atol=1e-5, rtol=1e-5)


def test_a_killed_pass_is_taken_up_where_it_stopped(tiny_lm, texts, monkeypatch):
    lm, ask = tiny_lm("gpt2"), ExtractionRequest(layers=(1,), seed=99, prompt=" resumed")
    real, calls = activations.PoolingVisitor.end, []

    def dies(self, seen):
        calls.append(len(seen.rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, seen)

    monkeypatch.setattr(activations.PoolingVisitor, "end", dies)
    with pytest.raises(KeyboardInterrupt):
        extract(lm, texts, ask, budget=TokenBudget(fixed=32))
    monkeypatch.setattr(activations.PoolingVisitor, "end", real)
    rest = extract(lm, texts, ask)
    assert rest.stats.rows == len(texts) - sum(calls[:2])
    torch.testing.assert_close(
        rest.column(1),
        extract(lm, texts, ExtractionRequest(layers=(1,), prompt=" resumed")).column(1),
    )


def test_a_disk_that_cannot_hold_it_is_refused_before_the_work(tiny_lm, texts, monkeypatch):
    def full(folder, needed):
        raise NoRoom(f"{needed} bytes are needed in {folder}.")

    monkeypatch.setattr("cutaway.extract.activations.check_free_space", full)
    monkeypatch.setattr(activations, "run_pass", None)
    with pytest.raises(NoRoom):
        extract(tiny_lm("gpt2"), texts, ExtractionRequest(layers=(1,), prompt=" full"))
