"""Timing of early exit: the rule that is timed, and where a model exits by default."""

from types import SimpleNamespace

import pytest

from cutaway.measure.intervals import Interval
from cutaway.methods.shortcut.exit_timing import (
    ExitRule,
    best_exit_rule,
    default_exit_layers,
    time_early_exit,
)
from cutaway.methods.shortcut.maths.exit_simulation import NO_EXIT_LAMBDA, ExitPoint


def point(setting: float, layers: float, agreement: float) -> ExitPoint:
    mean = Interval(layers, layers, layers, 0.95, 9)
    return ExitPoint(setting, mean, Interval(agreement, 0.0, 1.0, 0.95, 9))


@pytest.mark.parametrize(
    ("layers", "exits"), [(1, []), (2, [1]), (3, [1, 2]), (12, [6, 9]), (30, [15, 22])]
)
def test_default_exits_are_after_half_and_three_quarters(layers, exits) -> None:
    assert default_exit_layers(SimpleNamespace(layers=layers)) == exits


def test_the_rule_saves_most_layers_among_those_that_reach_the_agreement() -> None:
    curves = {
        ("id", "gap"): [point(0.2, 2.0, 0.5), point(0.9, 9.0, 0.97)],
        ("mat", "gap"): [point(0.3, 3.0, 0.8), point(0.8, 7.0, 0.96)],
        ("mat", "max"): [point(0.1, 1.0, 0.99)],
    }
    assert best_exit_rule(curves, 0.95) == ExitRule("mat", 0.8)
    assert best_exit_rule(curves, 0.99) is None


def test_a_rule_that_never_exits_runs_all_layers(toy, maps, other_sample) -> None:
    timing = time_early_exit(toy, maps, other_sample.full.rows, ExitRule("mat", NO_EXIT_LAMBDA))
    assert timing["run_layers"] == toy.layers
    assert timing["run_lambda"] == NO_EXIT_LAMBDA
    always = time_early_exit(toy, maps, other_sample.full.rows, ExitRule("mat", -NO_EXIT_LAMBDA))
    assert always["run_layers"] < toy.layers


def test_texts_that_fill_the_context_are_not_timed(toy, maps, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.exit_timing.TIMED_PROMPT_TOKENS", toy.context)
    assert time_early_exit(toy, maps, [[5] * toy.context], ExitRule("mat", 0.5)) == {}
