"""The choice of a draft: the replay predicts acceptance, the simulation the time."""

import pytest
import torch

from cutaway.methods.shortcut.decode import Drafter, plain_generate, speculative_decode
from cutaway.methods.shortcut.draft_choice import (
    Continuation,
    DraftReplay,
    DraftSetting,
    choose_draft,
    continuation_states,
    make_drafter,
    pays,
    replay_drafts,
    simulated_seconds,
)
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.step_timing import StepTimes

NEVER = frozenset({-1})
# Blocks take 8 and the head 2 for any number of tokens; there is no overhead.
TIMES = StepTimes({1: 8.0, 9: 8.0}, {1: 2.0, 9: 2.0}, 0.0)


def replay_of(correct: list[bool], confidence: list[float] | None = None) -> DraftReplay:
    return DraftReplay([correct], [confidence or [1.0] * len(correct)])


def test_a_draft_that_is_never_tried_costs_what_plain_costs() -> None:
    seconds = simulated_seconds(TIMES, 0.0, 0.0, replay_of([True] * 12, [0.1] * 12), 4, floor=0.5)
    assert seconds == pytest.approx(12 * TIMES.plain)


def test_free_and_correct_drafts_divide_the_time() -> None:
    assert (
        simulated_seconds(TIMES, 0.0, 0.0, replay_of([True] * 12), 3, floor=0.0) == 3 * TIMES.plain
    )
    assert (
        simulated_seconds(TIMES, 0.0, 0.0, replay_of([False] * 12), 3, floor=0.0)
        == 12 * TIMES.plain
    )


def test_blocks_of_the_draft_are_paid_for_every_token() -> None:
    # A quarter of the blocks for each of 3 tokens, then the rest and the head once.
    assert simulated_seconds(
        TIMES, 0.5, 0.25, replay_of([True] * 3), 2, floor=0.0
    ) == pytest.approx(3 * 2 + 6 + 2 + 2 * 0.5)


def test_nothing_is_accepted_after_a_wrong_draft() -> None:
    seconds = simulated_seconds(TIMES, 0.0, 0.0, replay_of([True, False, True, True]), 3, floor=0.0)
    assert seconds == 2 * TIMES.plain


@pytest.mark.parametrize("uses_previous", [False, True])
@torch.inference_mode()
def test_the_replay_predicts_the_number_of_rounds(toy, uses_previous: bool) -> None:
    rng = torch.Generator().manual_seed(1)
    width = toy.width * (2 if uses_previous else 1)
    jump = torch.zeros(width, toy.width)
    jump[-toy.width :] = torch.eye(toy.width)
    jump += 0.02 * torch.randn(jump.shape, generator=rng)
    weight, bias = toy.output_embedding
    drafter = Drafter(
        Shortcut((jump,)), torch.arange(toy.vocab), weight.detach().T.contiguous(),
        None if bias is None else bias.detach(), 3, 0.3, uses_previous,
    )  # fmt: skip
    kept = rounds = 0
    hoped = 0.0
    for seed in range(6):
        prompt = torch.randint(5, toy.vocab, (1, 6), generator=torch.Generator().manual_seed(seed))
        [tokens], _ = plain_generate(toy, prompt, 24, NEVER)
        with segmented(toy, [2]) as cut:
            found = speculative_decode(cut, prompt, drafter, logits_fn(toy), limit=24, stops=NEVER)
        kept, rounds = kept + found.accepted, rounds + found.rounds
        text = continuation_states(toy, [Continuation(prompt[0].tolist() + tokens, 24)], [2])[0]
        # With the time of a round as the only cost, seconds are rounds.
        replay = replay_drafts(toy, drafter, 2, 3, text)
        replay = DraftReplay([r[1:] for r in replay.correct], [s[1:] for s in replay.confidence])
        hoped += simulated_seconds(
            StepTimes({1: 0.0}, {1: 1.0, 9: 1.0}, 0.0), 0.0, 0.0, replay, 3, 0.3
        )
    assert kept > 0
    assert rounds == pytest.approx(hoped, abs=2)


def test_the_best_setting_is_chosen_among_those_given(toy, maps) -> None:
    prompt = torch.randint(5, toy.vocab, (1, 6), generator=torch.Generator().manual_seed(0))
    [tokens], _ = plain_generate(toy, prompt, 24, NEVER)
    text = Continuation(prompt[0].tolist() + tokens, 24)
    setting = choose_draft(toy, maps, [text], [("mat", 1), ("tuned", 2)], TIMES, (2,))
    assert (setting.kind, setting.layer) in {("mat", 1), ("tuned", 2)}
    assert setting.length == 2
    assert setting.expected > 0


def test_a_drafter_chooses_from_frequent_tokens_and_those_of_the_prompt(toy, maps) -> None:
    drafter = make_drafter(toy, maps, "mat", 1, prompt=[3, 3, 7])
    assert {3, 7, *maps.draft_tokens(toy.vocab).tolist()} == set(drafter.vocabulary.tolist())
    weight, _ = toy.output_embedding
    torch.testing.assert_close(drafter.weight.T, weight[drafter.vocabulary])


@pytest.mark.parametrize(("tokens", "needed"), [(9, 1.22), (36, 1.12), (3600, 1.03)])
def test_few_tokens_need_a_larger_gain(tokens: int, needed: float) -> None:
    settings = [DraftSetting("mat", 1, 2, 0.0, needed + more) for more in (-0.001, 0.001)]
    assert [pays(one, tokens) for one in settings] == [False, True]
    assert not pays(DraftSetting("mat", 1, 2, 0.0), tokens)


def test_no_more_texts_are_read_than_needed(toy, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.draft_choice.MIN_TOKENS", 5)
    texts = [Continuation([5, 6, 7, 8, 9], 3) for _ in range(4)]
    assert len(continuation_states(toy, texts, [1])) == 2


def test_a_draft_that_ignores_the_previous_state_is_the_same_at_every_depth() -> None:
    replay = DraftReplay([[True, False]], [[0.9, 0.2]])
    assert replay.at(0, 1) == replay.at(3, 1) == (False, 0.2)
    deeper = DraftReplay([[True], [False]], [[0.9], [0.4]])
    assert deeper.at(5, 0) == (False, 0.4)
