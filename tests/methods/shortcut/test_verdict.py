"""Verdicts of shortcut: the first sentence states the finding, others follow when they apply."""

from types import SimpleNamespace

import numpy as np

from cutaway.measure.intervals import Interval
from cutaway.methods.shortcut.comparisons import (
    TriedExit,
    conclude_over_texts,
    paired_over_texts,
)
from cutaway.methods.shortcut.maths.exit_simulation import CalibratedExit
from cutaway.methods.shortcut.verdict import (
    eval_verdict,
    exit_verdict,
    fit_verdict,
    generate_verdict,
)

CALIBRATED = CalibratedExit(
    0.97, 0.95, 0.05, Interval(8.0, 7.5, 8.5, 0.95, 500), Interval(0.99, 0.97, 0.995, 0.95, 500), 10
)
SAVED = Interval(0.07, 0.04, 0.1, 0.95, 40)
TIMING = {"block_ms": 1.7, "look_ms": 9.8, "exit_ms": 94.0, "plain_ms": 60.0}
EXIT = {"layers": 10, "risk": 0.05, "positions": 1}
NO_TRY = None


def gain(mean: float, error: float, among: int = 1):
    texts = np.repeat(np.arange(40), 2)
    values = mean + error * 40**0.5 * np.tile([1.0, 1.0, -1.0, -1.0], 20)
    return conclude_over_texts(paired_over_texts(values, 0 * values, texts), 40, among=among)


def test_a_fit_is_compared_with_the_identity() -> None:
    sentence, tested = fit_verdict(0.834, -2.0, 15, 30, gain(0.3, 0.02), 40)
    assert tested.startswith("The map against the identity, in explained variance: better, +0.300")
    assert "(paired t test over 40 texts, p < 0.001)." in tested
    assert "from layer 15 explains 83% of the variance of layer 30" in sentence
    assert "identity: none" in sentence


def test_an_evaluation_is_compared_with_the_logit_lens_by_a_test() -> None:
    precision = {"id": [0.1, 0.2, 1.0], "mat": [0.3, 0.5, 1.0]}
    sentence, tested = eval_verdict(precision, "mat", 2, gain(0.3, 0.2), 40)
    assert "through the mat map" in sentence and "logit lens, id: 20%" in sentence
    assert tested.startswith("The mat map, against the logit lens at layer 1: 40 texts can't tell")
    _, several = eval_verdict({**precision, "tuned": precision["id"]}, "mat", 2, gain(0.3, 0), 40)
    assert "chosen from 2 kinds that hold 5 % together, against the logit lens" in several
    [alone] = eval_verdict(precision, "id", 2, None, 40)
    assert "through the id map" in alone and "lens" not in alone


def test_the_best_saving_comes_first() -> None:
    none = Interval(0.0, 0.0, 0.0, 0.95, 40)
    tried = TriedExit("mat/max", 0.97, SAVED, Interval(0.94, 0.9, 0.98, 0.95, 40))
    sentences = exit_verdict({"id/gap": none, "mat/max": SAVED}, tried, [], {}, **EXIT)
    assert sentences == [
        "Set for 95 % agreement on every second text (mat/max, lambda 0.97), early exit skips 7.0% "
        "(95 % interval 4.0% to 10.0%) of the 10 layers on the others, with 94.0% (95 % interval "
        "90.0% to 98.0%) agreement.",
        "At best it skips 7.0% at 95 % agreement (mat/max), if map, confidence and lambda are "
        "chosen on the same 40 tokens.",
    ]
    assert "skips 0.0% at" in exit_verdict({"id/gap": none}, NO_TRY, [], {}, **EXIT)[0]


def test_a_calibration_states_its_guarantee_and_its_limits() -> None:
    found = [("mat", "gap", CALIBRATED)]
    guarantee = exit_verdict({"mat/gap": SAVED}, NO_TRY, found, {}, **EXIT)[1]
    assert "agreement is at least 95% with 95% confidence" in guarantee
    assert "500 held-out tokens" in guarantee
    assert "measured: 99.0% (95 % interval 97.0% to 99.5%)" in guarantee
    assert "20.0% (95 % interval 15.0% to 25.0%) of the layers are skipped" in guarantee
    dependent = exit_verdict({"mat/gap": SAVED}, NO_TRY, found, {}, **EXIT | {"positions": 3})
    assert "independent" in dependent[2]
    all_layers, all_agree = (Interval(one, one, one, 0.95, 20) for one in (10.0, 1.0))
    few = CalibratedExit(1.112, 0.95, 0.05, all_layers, all_agree, 10)
    assert "59 are needed" in exit_verdict({"a/b": SAVED}, NO_TRY, [("a", "b", few)], {}, **EXIT)[2]


def test_timing_is_reported_as_estimated_and_as_measured() -> None:
    [_, estimated] = exit_verdict({"a/b": SAVED}, NO_TRY, [], TIMING, **EXIT)
    assert "1.7 ms" in estimated and "60 ms" in estimated
    run = {"run_exit_ms": 94.0, "run_plain_ms": 72.0, "run_layers": 29.1, "run_lambda": 0.9}
    run |= {"run_exit_processor_ms": 61.0, "run_plain_processor_ms": 63.0}
    measured = exit_verdict({"a/b": SAVED}, NO_TRY, [], TIMING | run, **EXIT)[2]
    assert "61 ms of processor time per token after 29.1 layers" in measured
    assert "94 and 72 ms by the clock" in measured


def test_generated_texts_are_compared_with_plain_generate() -> None:
    text = SimpleNamespace(
        seconds=0.5, processor_seconds=0.9, plain_seconds=2.0, plain_processor_seconds=1.0,
        accepted=0.5, layers_mean=4.0, identical=True, tokens=[1, 2, 3],
    )  # fmt: skip
    setting = SimpleNamespace(kind="ahead", layer=0, length=3, floor=0.2)
    setup = SimpleNamespace(seconds=0.5, processor_seconds=0.1)
    options = {"layers": 6, "mode": "speculative"}
    drafted = generate_verdict([text], setting, setup, sample=False, **options)
    assert drafted[0] == (
        "3 tokens in 0.50 s (0.90 s of processor time), after 0.50 s of measurements."
    )
    assert "50% of the drafted tokens were accepted" in drafted[1]
    assert drafted[2].startswith("1.00 times the speed of plain generate in processor time")
    assert "2.00 times by the clock" in drafted[2]
    assert drafted[3] == "1 of 1 texts are identical to plain generate's."
    twice = generate_verdict([text, text], setting, setup, sample=False, **options)
    assert twice[3].startswith("Log ratio of processor times, text by text, without measurements")
    exited = generate_verdict([text], None, setup, layers=6, mode="exit", sample=True)
    assert exited[1] == "Tokens exit after 4.0 of 6 layers on average."
    text.plain_seconds = None
    assert len(generate_verdict([text], setting, setup, sample=False, **options)) == 2
