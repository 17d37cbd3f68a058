"""Early exit: the simulation equals a literal run, and calibrations keep their guarantee."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.methods.shortcut.maths.exit_simulation import (
    ALL_LAMBDAS,
    CALIBRATION_LAMBDAS,
    CONFIDENCES,
    FINE_LAMBDAS,
    LAMBDAS,
    NO_EXIT_LAMBDA,
    LayerConfidences,
    agreement_at,
    calibrate,
    exit_curve,
    exit_layers,
    exit_threshold,
    fixed_exit_curve,
)
from cutaway.methods.shortcut.maths.lens import final_distribution, layer_predictions


def some_confidences(tokens: int, layers: int = 6, *, seed: int = 0) -> LayerConfidences:
    """Later layers are surer and more often right, as in a model."""
    rng = np.random.default_rng(seed)
    depth = np.arange(1, layers + 1)[:, None] / layers
    sure = np.clip(
        rng.random((layers, tokens)) * depth + rng.normal(0, 0.1, (layers, tokens)), 0, 1
    )
    right = rng.random((layers, tokens)) < 0.4 * sure + 0.6 * depth
    right[-1] = True
    return LayerConfidences(sure, right, rng.integers(0, 30, tokens), 20.0)


def literal(confidences: LayerConfidences, lambda_: float) -> tuple[list[int], list[bool]]:
    """The paper's loop: token by token, layer by layer, stop when sure."""
    layers, right = [], []
    for token, place in enumerate(confidences.positions):
        need = 0.9 * lambda_ + 0.1 * np.exp(-4 * place / confidences.mean_length)
        for layer in range(1, len(confidences.values) + 1):
            if layer == len(confidences.values) or confidences.values[layer - 1, token] > need:
                layers.append(layer)
                right.append(bool(confidences.correct[layer - 1, token]))
                break
    return layers, right


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), lambda_=st.sampled_from(FINE_LAMBDAS))
def test_the_simulator_equals_a_literal_run_of_each_lambda(seed: int, lambda_: float) -> None:
    confidences = some_confidences(25, seed=seed)
    layers, right = literal(confidences, lambda_)
    assert exit_layers(confidences, lambda_).tolist() == layers
    assert agreement_at(confidences, exit_layers(confidences, lambda_)).tolist() == right


def test_the_ends_of_the_grid_run_one_layer_and_all_layers() -> None:
    points = {point.setting: point for point in exit_curve(some_confidences(200))}
    assert set(points) == set(LAMBDAS)
    assert points[-1.112].layers.mean == 1
    assert points[1.112].layers.mean == 6
    assert points[1.112].agreement.mean == 1


def test_a_stricter_lambda_never_exits_earlier() -> None:
    confidences = some_confidences(100)
    runs = [exit_layers(confidences, lam) for lam in FINE_LAMBDAS]
    assert all((later >= earlier).all() for earlier, later in pairwise(runs))


def test_the_fixed_curve_takes_every_layer_as_it_is() -> None:
    confidences = some_confidences(100)
    for layer, point in enumerate(fixed_exit_curve(confidences), start=1):
        assert (point.layers.low, point.layers.mean, point.layers.high) == (layer, layer, layer)
        assert point.agreement.mean == pytest.approx(confidences.correct[layer - 1].mean())


def test_early_tokens_need_more_certainty() -> None:
    early, late = exit_threshold(0.5, np.array([0, 1000]), 20.0)
    assert early == pytest.approx(0.55)
    assert late == pytest.approx(0.45)


@pytest.mark.parametrize("name", CONFIDENCES)
def test_every_confidence_is_0_for_no_idea_and_1_for_certainty(name: str) -> None:
    logits = torch.stack([torch.zeros(50), torch.nn.functional.one_hot(torch.tensor(7), 50) * 1e4])
    sure = CONFIDENCES[name](layer_predictions(logits, final_distribution(logits)), 50)
    assert sure[0] == pytest.approx(0.02 if name == "max" else 0.0, abs=1e-6)
    assert sure[1] == pytest.approx(1.0, abs=1e-6)


def above_one(tokens: int, *, seed: int = 0) -> LayerConfidences:
    """Of two layers the first agrees in 90 % of the tokens at lambda 1, in 99 % at 1.1."""
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.arange(tokens) % 100)
    sure = np.stack([np.where(kind < 9, 0.95, 0.995), np.ones(tokens)])
    right = np.stack([kind >= 10, np.ones(tokens, dtype=bool)])
    return LayerConfidences(sure, right, np.full(tokens, 1000), 20.0)


@pytest.mark.parametrize(
    ("kind", "wished"),
    [(some_confidences, 0.9), (some_confidences, 0.97), (above_one, 0.95), (above_one, 0.995)],
)
def test_a_calibrated_threshold_keeps_its_promise_on_new_tokens(kind, wished: float) -> None:
    population = kind(200_000, seed=1)
    rng, broken, trials = np.random.default_rng(0), 0, 200
    for _ in range(trials):
        found = calibrate(population.take(rng.integers(200_000, size=300)), wished, risk=0.1)
        broken += agreement_at(population, exit_layers(population, found.setting)).mean() < wished
    # At most 10 % may break it; 200 trials see 32 or more of them with a chance below 1 %.
    assert broken < 32


def test_a_promise_that_only_a_lambda_above_one_keeps_is_found() -> None:
    confidences = above_one(2000)
    seen = {
        lam: agreement_at(confidences, exit_layers(confidences, lam)).mean() for lam in (1.0, 1.1)
    }
    assert seen == {1.0: pytest.approx(0.90), 1.1: pytest.approx(0.99)}
    found = calibrate(confidences, 0.95, risk=0.05)
    assert 1.0 < found.setting <= 1.1
    assert found.saved.mean > 0.4


def test_a_calibration_tries_every_fine_lambda_strictest_first() -> None:
    assert set(CALIBRATION_LAMBDAS) >= {lam for lam in FINE_LAMBDAS if lam < NO_EXIT_LAMBDA}
    assert list(CALIBRATION_LAMBDAS) == sorted(CALIBRATION_LAMBDAS, reverse=True)


def test_more_held_out_tokens_never_make_the_choice_wild() -> None:
    found = calibrate(some_confidences(5000), 0.9)
    assert found.agreement.mean >= 0.9
    assert 0 < found.saved.low < found.saved.mean < found.saved.high < 1
    assert found.saved.mean == pytest.approx(1 - found.layers.mean / 6)
    assert found.saved.low == pytest.approx(1 - found.layers.high / 6)
    assert found.plain()["saved_low"] == found.saved.low and found.plain()["tokens"] == 5000


@pytest.mark.parametrize(("wished", "risk"), [(0.0, 0.05), (1.0, 0.05), (0.9, 0.0)])
def test_a_wish_outside_of_0_and_1_is_refused(wished: float, risk: float) -> None:
    with pytest.raises(BadSpec, match="between 0 and 1"):
        calibrate(some_confidences(10), wished, risk=risk)


def test_a_track_of_other_tokens_is_refused() -> None:
    with pytest.raises(Mismatch, match="same layers and tokens"):
        LayerConfidences(np.zeros((2, 3)), np.zeros((2, 4), bool), np.zeros(3, np.int64), 5.0)
    with pytest.raises(BadData, match="No tokens"):
        LayerConfidences(np.zeros((2, 0)), np.zeros((2, 0), bool), np.zeros(0, np.int64), 5.0)


def test_with_too_few_tokens_only_the_whole_model_is_promised() -> None:
    # Ten perfect tokens can't vouch for 95 %: 59 can.
    for tokens, early in ((10, False), (59, True)):
        sure = np.full((4, tokens), 0.99)
        confidences = LayerConfidences(
            sure, np.ones((4, tokens), dtype=bool), np.arange(tokens), 8.0
        )
        found = calibrate(confidences, 0.95, risk=0.05)
        assert found.needed == 59
        assert (found.layers.mean < 4) is early and found.agreement.mean == 1.0


def test_confidences_equal_their_definitions() -> None:
    logits = 2 * torch.randn(20, 50, generator=torch.Generator().manual_seed(4))
    predicted = layer_predictions(logits, final_distribution(logits))
    probs = np.sort(logits.double().softmax(-1).numpy(), axis=-1)
    entropy = -(probs * np.log(probs)).sum(-1)
    expected = {
        "gap": probs[:, -1] - probs[:, -2], "max": probs[:, -1],
        "entropy": 1 - entropy / np.log(50),
    }  # fmt: skip
    assert set(expected) == set(CONFIDENCES)
    for name, values in expected.items():
        np.testing.assert_allclose(CONFIDENCES[name](predicted, 50), values, atol=1e-5)


def test_savings_and_needed_tokens_follow_from_their_formulas() -> None:
    found = calibrate(some_confidences(400), 0.6)
    assert found.saved.mean == pytest.approx(1 - found.layers.mean / 6)
    # With `needed` agreements in a row the test just rejects, with one fewer it does not.
    assert found.wished**found.needed <= found.risk < found.wished ** (found.needed - 1)


def test_some_of_the_tokens_keep_their_confidences() -> None:
    confidences = some_confidences(30)
    few = confidences.take(np.array([4, 2]))
    assert few.values.tolist() == confidences.values[:, [4, 2]].tolist()
    assert few.positions.tolist() == confidences.positions[[4, 2]].tolist()


def test_points_have_intervals_around_their_means() -> None:
    for point in exit_curve(some_confidences(80), (0.2, 0.6)):
        for interval in (point.layers, point.agreement):
            assert interval.low <= interval.mean <= interval.high


def test_the_grids_contain_each_other() -> None:
    assert set(LAMBDAS) <= set(FINE_LAMBDAS) <= set(ALL_LAMBDAS)
    assert set(CALIBRATION_LAMBDAS) <= set(ALL_LAMBDAS)
    assert max(ALL_LAMBDAS) == NO_EXIT_LAMBDA
