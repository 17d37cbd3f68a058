"""Which rows go together decides the last digit, so it must not hang on what the clock says."""

import itertools
import random
import shutil
from types import SimpleNamespace

import pytest
import torch

from cutaway.core.textset import TextSet
from cutaway.extract import forward_pass
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.home import read_memo, write_memo
from cutaway.models import batches
from tests.tiny import SENTENCES

TEXTS = TextSet("many", tuple(f"{a} {b}" for a, b in itertools.product(SENTENCES[:6], repeat=2)))
ASK = ExtractionRequest(layers=(0, 1), pools=("mean",))


@pytest.fixture
def together(tiny_lm, tmp_path, monkeypatch):
    """Which rows a machine in such a mood reads together; states that a home has are dropped."""
    plain = forward_pass._forward_batch

    def once(mood: int, home: str) -> list[list[int]]:
        rng, seen = random.Random(mood), []
        shutil.rmtree(tmp_path / home / "activations", ignore_errors=True)
        monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / home))
        monkeypatch.setattr(batches.Stopwatch, "lap", lambda _: rng.uniform(0.01, 9.0))
        monkeypatch.setattr(
            forward_pass, "_forward_batch", lambda *a: (seen.append(a[2].tolist()), plain(*a))[1]
        )
        extract(tiny_lm("gpt2"), TEXTS, ASK)
        assert sorted(itertools.chain(*seen)) == list(range(len(TEXTS)))
        return seen

    return once


@pytest.fixture
def large(monkeypatch):
    """Every set is large, and budgets are so small that a tiny one can settle which is best."""
    monkeypatch.setattr(forward_pass, "SMALL_SET_TOKENS", 0)
    monkeypatch.setattr(batches, "TOKEN_BUDGETS", (24, 48, 96))
    monkeypatch.setattr(batches, "FREE_PADDING_TOKENS", 8)


def test_a_small_set_is_read_in_the_same_batches_whatever_the_clock_says(together) -> None:
    assert len({str(together(mood, f"home {mood}")) for mood in range(6)}) == 1


def test_a_large_set_is_read_by_the_clock_where_nothing_is_known(together, large) -> None:
    assert len({str(together(mood, f"home {mood}")) for mood in range(6)}) > 1


def test_what_was_settled_once_holds_for_every_later_run(together, tiny_lm, large) -> None:
    together(0, "home")
    where = forward_pass._speed_key(tiny_lm("gpt2"))
    settled = read_memo(forward_pass.BUDGET_MEMO, where)
    assert settled in batches.TOKEN_BUDGETS
    assert len({str(together(mood, "home")) for mood in range(1, 6)}) == 1
    assert read_memo(forward_pass.BUDGET_MEMO, where) == settled


@pytest.mark.parametrize("known", ["many", -3, 0, True, None, [512]])
def test_a_remembered_budget_that_is_none_is_learnt_again(known, tiny_lm, large) -> None:
    lm = tiny_lm("gpt2")
    write_memo(forward_pass.BUDGET_MEMO, forward_pass._speed_key(lm), known)
    assert forward_pass._budget_for(lm, 10**6).fixed is None


def test_the_next_token_of_a_large_vocabulary_costs_no_digits() -> None:
    logits = 5 * torch.randn(3, 262_144, generator=torch.Generator().manual_seed(0)) + 80
    head = SimpleNamespace(unembed=lambda state: state, final_norm=lambda state: state)
    token, probability, entropy = forward_pass._next_token(head, logits).double().T
    exact = logits.double().log_softmax(dim=-1)
    assert token.tolist() == exact.argmax(dim=-1).tolist()
    torch.testing.assert_close(probability, exact.amax(dim=-1).exp(), rtol=1e-6, atol=0)
    torch.testing.assert_close(entropy, -(exact.exp() * exact).sum(dim=-1), rtol=0, atol=5e-6)
