"""Skip schedules on a model."""

import pytest
import torch

from cutaway.extract.request import ExtractionRequest, build_token_rows
from cutaway.methods.shortcut.maths.schedule import SkipSchedule, best_schedules
from cutaway.methods.shortcut.schedules import candidate_schedules, run_schedule
from cutaway.models.hooks import collect_states
from tests.methods.shortcut.toy import OTHER

ROWS = [3, 1]


@pytest.fixture
def inputs(toy):
    return build_token_rows(toy, OTHER, ExtractionRequest(layers=(0,), input_mode="cut"))


def states_at_mark(lm, inputs, row: int, layer: int) -> torch.Tensor:
    ids = torch.tensor([inputs.rows[row]])
    states = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers[layer]
    return states[0, inputs.marks[row][0]]


def test_a_schedule_of_every_block_is_the_model_itself(toy, maps, inputs) -> None:
    final = run_schedule(toy, inputs, ROWS, maps, best_schedules({}, toy.layers)[0])
    for n, row in enumerate(ROWS):
        expected = states_at_mark(toy, inputs, row, toy.layers)
        torch.testing.assert_close(final[n], expected, rtol=1e-4, atol=1e-5)


def test_a_jump_to_the_end_is_the_map_of_that_layer(toy, maps, inputs) -> None:
    schedule = SkipSchedule(((0, 1, "run"), (1, 3, "jump")), 0.0)
    final = run_schedule(toy, inputs, ROWS, maps, schedule)
    for n, row in enumerate(ROWS):
        expected = maps.jump(1, 3)(states_at_mark(toy, inputs, row, 1))
        torch.testing.assert_close(final[n], expected, rtol=1e-4, atol=1e-4)


def test_candidates_are_named_by_their_blocks_and_by_the_papers_patterns() -> None:
    r2 = {(i, j): 0.9 - 0.1 * (j - i) for i in range(6) for j in range(i + 1, 7)}
    named = candidate_schedules(r2, 6)
    assert {"alternate:1+1", "alternate:2+1", "alternate:3+1"} < set(named)
    for name, schedule in named.items():
        if name.startswith("schedule:"):
            assert 0 < schedule.blocks < 6
            assert name == f"schedule:{schedule.blocks}"
