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


def test_two_drafted_tokens_have_the_joint_distribution_of_the_full_model() -> None:
    rng = torch.Generator().manual_seed(1)
    first, second = torch.tensor([0.6, 0.4]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    draft_first, draft_second = torch.tensor([0.3, 0.7]), torch.tensor([[0.5, 0.5], [0.6, 0.4]])
    counts = np.zeros((2, 2))
    for _ in range(4000):
        one = sample_token(draft_first, rng=rng)
        two = sample_token(draft_second[one], rng=rng)
        drafted = torch.stack([draft_first, draft_second[one]])
        full = torch.stack([first, second[one], torch.tensor([0.5, 0.5])])
        accepted = accept_sampled(torch.tensor([one, two]), drafted, full, rng=rng)
        tokens = [one, two][: accepted.count] + [accepted.next_token]
        if len(tokens) == 1:
            # The first draft was rejected: the full model samples the second token.
            tokens.append(sample_token(second[tokens[0]], rng=rng))
        counts[tokens[0], tokens[1]] += 1
    expected = (first[:, None] * second).double().numpy().ravel()
    assert chisquare(counts.ravel(), 4000 * expected / expected.sum()).pvalue > 1e-3


def test_an_empty_draft_gives_the_full_models_next_token() -> None:
    none = torch.zeros(0, dtype=torch.long)
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert accept_greedy(none, logits).next_token == 1
    certain = torch.tensor([[0.0, 0.0, 1.0]])
    accepted = accept_sampled(none, torch.zeros(0, 3), certain, rng=torch.Generator())
    assert (accepted.count, accepted.next_token) == (0, 2)


def test_a_token_that_the_full_model_never_generates_is_always_rejected() -> None:
    rng = torch.Generator().manual_seed(0)
    full, drafted = torch.tensor([[0.5, 0.5, 0.0]] * 2), torch.tensor([[0.1, 0.1, 0.8]])
    for _ in range(30):
        accepted = accept_sampled(torch.tensor([2]), drafted, full, rng=rng)
        assert accepted.count == 0
        assert accepted.next_token in (0, 1)
