"""Step times: interpolation between measured numbers of tokens, and real measurements."""

import time

import pytest

from cutaway.methods.shortcut.step_timing import (
    StepTimes,
    TimeSpent,
    fastest_of_each,
    measure_step_times,
)

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


def test_works_are_warmed_up_and_timed_in_turn(toy) -> None:
    calls: list[str] = []
    times = fastest_of_each([lambda: calls.append("a"), lambda: calls.append("b")], toy, tries=3)
    assert "".join(calls) == "abababab"
    assert len(times) == 2 and min(times) >= 0


def test_a_stopwatch_adds_up_and_counts_only_its_own_processor_time(toy) -> None:
    watch = TimeSpent()
    for _ in range(2):
        with watch:
            time.sleep(0.02)
    assert watch.seconds >= 0.04
    assert watch.processor_seconds < 0.02, "sleeping needs the clock, not the processor"
    assert watch.cost(toy) == watch.processor_seconds
