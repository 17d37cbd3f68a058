"""Draft maps: fitted on the model's own continuations to predict its next last state."""

import torch

from cutaway.console import Console
from cutaway.methods.shortcut.decode import stop_token_ids
from cutaway.methods.shortcut.draft_maps import (
    MAX_PROMPT_TOKENS,
    _cut_at_stop,
    _prompt_batches,
    candidate_layers,
    collect_draft_states,
    continue_texts,
    fit_draft_maps,
    subset_logits_fn,
)
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.hooks import collect_states


def test_prompts_of_a_batch_have_equal_length_and_are_beginnings(other_sample) -> None:
    rows = [list(range(n)) for n in range(2, 90)]
    batches = list(_prompt_batches(rows))
    assert sum(len(batch) for batch in batches) == len(rows)
    for batch in batches:
        assert len({len(prompt) for prompt in batch}) == 1
        assert 1 <= len(batch[0]) <= MAX_PROMPT_TOKENS
        assert all(prompt == list(range(len(prompt))) for prompt in batch)


def test_a_continuation_ends_with_the_first_stop_token(toy) -> None:
    assert _cut_at_stop([4, 9, 5, 9], frozenset({9})) == [4, 9]
    assert _cut_at_stop([4, 5], frozenset({9})) == [4, 5]
    prompts = [[5, 6, 7], [8, 9, 10]]
    stops = stop_token_ids(toy)
    for prompt, row in zip(prompts, continue_texts(toy, prompts, new=6), strict=True):
        assert row[:3] == prompt
        assert 1 <= len(row) - 3 <= 6
        assert not set(row[3:-1]) & stops


def test_each_example_pairs_a_state_with_the_previous_final_state(toy) -> None:
    rows = [[5, 6, 7, 8], [9, 10, 11]]
    states = collect_draft_states(toy, rows, [0, 1])
    assert len(states.previous) == len(states.final) == 3 + 2
    ids = torch.tensor([rows[1]])
    plain = collect_states(toy, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    torch.testing.assert_close(states.previous[3:], plain[toy.layers][0, :-1])
    torch.testing.assert_close(states.final[3:], plain[toy.layers][0, 1:])
    torch.testing.assert_close(states.layers[1][3:], plain[1][0, 1:])


def test_logits_of_a_subset_are_columns_of_the_full_logits(toy) -> None:
    hidden = torch.randn(4, toy.width, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([3, 11, 20])
    with torch.no_grad():
        few = subset_logits_fn(toy, tokens)(hidden)
        torch.testing.assert_close(few, logits_fn(toy)(hidden)[:, tokens], rtol=1e-4, atol=1e-4)


def test_a_draft_map_predicts_the_next_state_better_than_the_previous_one(
    toy, other_sample
) -> None:
    rows = other_sample.full.rows
    maps = fit_draft_maps(toy, rows, torch.arange(toy.vocab), Console(quiet=True), seed=0)
    assert {layer for _, layer, _ in maps} == set(candidate_layers(toy))
    states = collect_draft_states(toy, rows[:10], [1])
    inputs = torch.cat([states.previous, states.layers[1]], dim=1)
    error = (maps["ahead", 1, toy.layers](inputs) - states.final).square().sum()
    assert error < (states.previous - states.final).square().sum()
