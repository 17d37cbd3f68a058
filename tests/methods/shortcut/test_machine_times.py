"""Times of a machine: measured once, kept, and read back unchanged."""

import json

from cutaway.methods.shortcut import machine_times as module
from cutaway.methods.shortcut.machine_times import MachineTimes, machine_times, times_from_plain
from cutaway.methods.shortcut.step_timing import StepTimes
from cutaway.models.small_matmul import MatmulVariant


def test_kept_times_are_the_measured_ones() -> None:
    times = MachineTimes(
        {(8, 4): {1: MatmulVariant(True, 2), 3: MatmulVariant(False, 4)}},
        StepTimes({1: 0.5, 2: 0.75}, {1: 0.25}, 0.125),
    )
    assert times_from_plain(json.loads(json.dumps(times.plain()))) == times


def test_a_model_is_measured_once(toy, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    first = machine_times(toy, 3)
    monkeypatch.setattr(module, "measure_variants", None)
    assert machine_times(toy, 3) == first
