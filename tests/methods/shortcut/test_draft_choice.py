"""Choosing a draft: hindsight tells what drafting does, the rehearsal what it costs."""

import pytest
import torch

from cutaway.methods.shortcut.decode import Drafter, plain_generate, speculative_decode
from cutaway.methods.shortcut.draft_choice import (
    Continuation,
    DraftReplay,
    continuation_states,
    replay_drafts,
    simulated_seconds,
)
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.step_timing import StepTimes
from cutaway.models.load import open_model
from tests.tiny import toy_model

NEVER = frozenset({-1})
# Blocks take 8 and the head 2, however many tokens go through at once; a call is free.
COSTS = StepTimes({1: 8.0, 9: 8.0}, {1: 2.0, 9: 2.0}, 0.0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return open_model(str(toy_model(tmp_path_factory.mktemp("toy"))))


def view(right: list[bool], sure: list[float] | None = None) -> DraftReplay:
    return DraftReplay([right], [sure or [1.0] * len(right)])


def test_a_draft_that_is_never_tried_costs_what_plain_costs() -> None:
    seconds = simulated_seconds(COSTS, 0.0, 0.0, view([True] * 12, [0.1] * 12), 4, floor=0.5)
    assert seconds == pytest.approx(12 * COSTS.plain)


def test_free_drafts_that_are_always_right_divide_the_time() -> None:
    assert simulated_seconds(COSTS, 0.0, 0.0, view([True] * 12), 3, floor=0.0) == 3 * COSTS.plain
    assert simulated_seconds(COSTS, 0.0, 0.0, view([False] * 12), 3, floor=0.0) == 12 * COSTS.plain


def test_blocks_of_the_draft_are_paid_for_every_token() -> None:
    # A quarter of the blocks for each of 3 tokens, then the rest and the head once.
    assert simulated_seconds(COSTS, 0.5, 0.25, view([True] * 3), 2, floor=0.0) == pytest.approx(
        3 * 2 + 6 + 2 + 2 * 0.5
    )


def test_a_wrong_draft_ends_what_is_kept() -> None:
    seconds = simulated_seconds(COSTS, 0.0, 0.0, view([True, False, True, True]), 3, floor=0.0)
    assert seconds == 2 * COSTS.plain


@pytest.mark.parametrize("back", [False, True])
@torch.inference_mode()
def test_hindsight_tells_how_many_drafts_are_kept(toy, back: bool) -> None:
    rng = torch.Generator().manual_seed(1)
    width = toy.width * (2 if back else 1)
    jump = torch.zeros(width, toy.width)
    jump[-toy.width :] = torch.eye(toy.width)
    jump += 0.02 * torch.randn(jump.shape, generator=rng)
    weight, bias = toy.output_embedding
    drafter = Drafter(
        Shortcut((jump,)), torch.arange(toy.vocab), weight.detach().T.contiguous(),
        None if bias is None else bias.detach(), 3, 0.3, back,
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
