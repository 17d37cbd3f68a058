"""Speculation: greedy keeps what the full model writes, sampling keeps its distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from cutaway.methods.shortcut.maths.speculate import accept_greedy, accept_sampled, sample_token


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=5), st.integers(0, 10_000))
def test_greedy_keeps_the_longest_prefix_the_full_model_would_write(draft, seed) -> None:
    logits = torch.randn(len(draft) + 1, 3, generator=torch.Generator().manual_seed(seed))
    own = logits.argmax(1).tolist()
    accepted = accept_greedy(torch.tensor(draft, dtype=torch.long), logits)
    assert draft[: accepted.count] == own[: accepted.count]
    assert accepted.next_token == own[accepted.count]
    assert accepted.count == len(draft) or draft[accepted.count] != own[accepted.count]


@pytest.mark.parametrize("drafted", [[0.25] * 4, [0.7, 0.1, 0.1, 0.1], [0.0, 0.0, 0.5, 0.5]])
def test_sampled_tokens_have_the_full_models_distribution(drafted: list[float]) -> None:
    rng = torch.Generator().manual_seed(0)
    full, q = torch.tensor([[0.5, 0.3, 0.2, 0.0]] * 2), torch.tensor([drafted])
    counts = np.zeros(4)
    for _ in range(4000):
        token = sample_token(q[0], rng=rng)
        accepted = accept_sampled(torch.tensor([token]), q, full, rng=rng)
        counts[token if accepted.count else accepted.next_token] += 1
    assert counts[3] == 0
    assert chisquare(counts[:3], 4000 * np.array([0.5, 0.3, 0.2])).pvalue > 1e-3


def test_a_perfect_draft_is_always_kept() -> None:
    rng = torch.Generator().manual_seed(0)
    full = torch.softmax(torch.randn(4, 9, generator=rng), -1)
    draft = torch.tensor([sample_token(row, rng=rng) for row in full[:3]])
    assert all(accept_sampled(draft, full[:3], full, rng=rng).count == 3 for _ in range(20))
