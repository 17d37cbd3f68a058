"""Schedules: dynamic programming finds what trying everything finds."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec
from cutaway.methods.shortcut.maths.schedule import alternating_schedule, best_schedules


def all_ways(losses, layers: int, at: int = 0):
    """Every way from a layer to the last one as (blocks run, loss)."""
    if at == layers:
        yield 0, 0.0
        return
    for blocks, loss in all_ways(losses, layers, at + 1):
        yield blocks + 1, loss
    for target in range(at + 1, layers + 1):
        for blocks, loss in all_ways(losses, layers, target):
            yield blocks, loss + losses[at, target]


@settings(max_examples=25, deadline=None)
@given(layers=st.integers(1, 6), seed=st.integers(0, 100))
def test_no_schedule_beats_the_one_found(layers: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    pairs = [(i, j) for i, j in product(range(layers + 1), repeat=2) if i < j]
    losses = dict(zip(pairs, torch.rand(len(pairs), generator=rng).tolist(), strict=True))
    found = best_schedules(losses, layers)
    assert [way.blocks for way in found] == list(range(layers + 1))
    for way in found:
        best = min(loss for blocks, loss in all_ways(losses, layers) if blocks == way.blocks)
        assert way.loss == pytest.approx(best)


def test_running_every_block_loses_nothing_and_jumps_nowhere() -> None:
    whole = best_schedules({(0, 3): 0.5}, 3)[-1]
    assert (whole.blocks, whole.jumps, whole.loss) == (3, 0, 0.0)
    assert whole.steps == ((0, 1, "run"), (1, 2, "run"), (2, 3, "run"))


def test_only_jumps_that_were_measured_are_taken() -> None:
    assert [way.blocks for way in best_schedules({(1, 3): 0.5}, 3)] == [1, 3]


@pytest.mark.parametrize(("run", "jump", "blocks"), [(1, 1, 3), (2, 3, 2), (2, 2, 3), (5, 1, 5)])
def test_an_alternation_reaches_the_end_by_turns(run: int, jump: int, blocks: int) -> None:
    way = alternating_schedule(5, run, jump)
    assert way.blocks == blocks
    ends = [step[1] for step in way.steps]
    assert ends[-1] == 5
    assert [step[0] for step in way.steps] == [0, *ends[:-1]]


def test_nothing_to_schedule_is_refused() -> None:
    with pytest.raises(BadSpec, match="at least 1 block"):
        best_schedules({}, 0)
    with pytest.raises(BadSpec, match="at least 1 block"):
        alternating_schedule(4, 0, 1)
