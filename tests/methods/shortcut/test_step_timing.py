"""Step times: interpolation between measured numbers of tokens, and real measurements."""

import pytest

from cutaway.methods.shortcut.step_timing import StepTimes, fastest_of, measure_step_times

TIMES = StepTimes({1: 8.0, 3: 12.0}, {1: 2.0, 3: 2.0}, overhead=4.0)


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 8.0), (2, 10.0), (3, 12.0), (6, 24.0)])
def test_times_are_interpolated_and_grow_in_proportion_beyond(tokens, seconds) -> None:
    assert TIMES.at(TIMES.blocks, tokens) == seconds


@pytest.mark.parametrize(("share", "seconds"), [(0.0, 4.0), (0.5, 6.0), (1.0, 8.0)])
def test_a_segment_costs_its_share_of_the_blocks_and_the_overhead(share, seconds) -> None:
    assert TIMES.segment(share, 1) == seconds


def test_a_plain_token_is_all_blocks_and_the_head() -> None:
    assert TIMES.plain == 10.0


def test_the_model_is_measured_for_each_number_of_tokens(toy) -> None:
    times = measure_step_times(toy, counts=(1, 2))
    assert set(times.blocks) == set(times.head) == {1, 2}
    assert min(times.overhead, *times.blocks.values(), *times.head.values()) > 0


def test_work_is_warmed_up_before_it_is_timed() -> None:
    calls = []
    assert fastest_of(lambda: calls.append(1), tries=3) >= 0
    assert len(calls) == 4
