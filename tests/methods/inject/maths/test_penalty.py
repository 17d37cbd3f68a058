"""Penalties, numbers, scores, overlaps: laws on the smallest cases."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.measure.metrics import log_rmse
from cutaway.methods.inject.maths.number_loss import (
    digit_positions,
    expected_numbers,
    find_number_tokens,
    squared_log_error,
)
from cutaway.methods.inject.maths.overlap import (
    fisher_mass,
    jaccard,
    largest_entries,
    moving_average,
    rank_correlation,
    values_at,
    weight_drift,
)
from cutaway.methods.inject.maths.penalty import (
    add_lora_gradient,
    fused_penalty,
    kl_from_base,
    normalise_fisher,
    penalty,
)
from cutaway.methods.inject.maths.score import exact_match_by_group, score_answers
from cutaway.methods.inject.maths.weight_maps import project_rows

SHAPES = {"a": (3, 4), "b": (5,), "c": (300, 300)}


def weights(seed: int) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}


def trained(seed: int) -> dict[str, torch.Tensor]:
    return {name: value.requires_grad_() for name, value in weights(seed).items()}


@pytest.mark.parametrize("fisher", [None, weights(3)])
@pytest.mark.parametrize("way", [penalty, fused_penalty])
def test_the_penalty_and_its_gradient_are_0_at_the_start(way, fisher) -> None:
    params = trained(0)
    squares = None if fisher is None else {n: v.square() for n, v in fisher.items()}
    value = way(params, weights(0), squares, 2.0)
    value.backward()
    assert value.item() == 0
    assert all(p.grad.eq(0).all() for p in params.values())


@pytest.mark.parametrize("strength", [0.0, 0.3, 10.0])
def test_the_quick_pull_is_the_formula_and_its_gradient(strength) -> None:
    fisher = {name: value.square() for name, value in weights(2).items()}
    one, two = trained(0), trained(0)
    slow = 3 * penalty(one, weights(1), fisher, strength)
    quick = 3 * fused_penalty(two, weights(1), fisher, strength)
    slow.backward()
    quick.backward()
    torch.testing.assert_close(quick, slow)
    for name in SHAPES:
        torch.testing.assert_close(two[name].grad, one[name].grad)


def test_the_pulls_gradient_is_handed_over_and_not_copied() -> None:
    params = trained(0)
    held = fused_penalty(params, weights(1), None, 1.0)
    place = held.grad_fn.made[2].data_ptr()
    held.backward(retain_graph=True)
    assert params["c"].grad.data_ptr() == place
    with pytest.raises(RuntimeError, match="call pull again"):
        held.backward()


@pytest.mark.parametrize("way", [penalty, fused_penalty])
def test_a_fisher_of_ones_is_l2sp(way) -> None:
    ones = {name: torch.ones(shape) for name, shape in SHAPES.items()}
    one, two = trained(0), trained(0)
    way(one, weights(1), ones, 0.7).backward()
    way(two, weights(1), None, 0.7).backward()
    assert all(torch.equal(one[name].grad, two[name].grad) for name in SHAPES)


@pytest.mark.parametrize("way", [penalty, fused_penalty])
def test_a_strength_below_0_and_other_weights_are_refused(way) -> None:
    with pytest.raises(BadSpec, match="0 or more"):
        way(trained(0), weights(0), None, -1.0)
    with pytest.raises(Mismatch, match="differ"):
        way(trained(0), weights(0), {"z": torch.ones(1)}, 1.0)


def test_a_normalised_fisher_has_mean_one_and_zeros_are_refused() -> None:
    found = normalise_fisher({name: value.square() for name, value in weights(0).items()})
    flat = torch.cat([value.reshape(-1) for value in found.values()])
    assert flat.mean().item() == pytest.approx(1)
    with pytest.raises(BadSpec, match="0 everywhere"):
        normalise_fisher({"a": torch.zeros(3)})


def test_the_pull_on_adapters_is_the_gradient_through_their_product() -> None:
    rng = torch.Generator().manual_seed(0)
    left = torch.randn(2, 5, generator=rng, requires_grad=True)
    right = torch.randn(4, 2, generator=rng, requires_grad=True)
    fisher = torch.rand(4, 5, generator=rng)
    (0.5 * 3.0 * fisher * (1.5 * right @ left).square()).sum().backward()
    expected = left.grad.clone(), right.grad.clone()
    left.grad = right.grad = None
    with torch.no_grad():
        add_lora_gradient(left, right, 1.5 * right @ left, fisher, 3.0, 1.5)
    torch.testing.assert_close((left.grad, right.grad), expected)


def test_the_distance_from_itself_is_0_and_padding_does_not_count() -> None:
    said = torch.randn(2, 3, 7)
    asked = torch.tensor([[True, True, False], [True, False, False]])
    assert kl_from_base(said, said, asked).item() == pytest.approx(0, abs=1e-6)
    other = said.clone()
    other[~asked] += torch.randn(3, 7)
    assert kl_from_base(said, other, asked).item() == pytest.approx(0, abs=1e-6)
    assert kl_from_base(said, said + torch.randn(2, 3, 7), asked).item() > 0


def test_log_rmse_by_hand_on_four_numbers() -> None:
    truth, said = np.array([0.0, 1.0, 9.0, 99.0]), np.array([0.0, 3.0, 9.0, 9.0])
    by_hand = np.sqrt((np.log(4 / 2) ** 2 + np.log(100 / 10) ** 2) / 4)
    assert log_rmse(truth, said) == pytest.approx(by_hand)
    assert score_answers(truth, said).log_rmse.mean == pytest.approx(by_hand)


@pytest.mark.parametrize("answer", [0.0, 5.0, 40.0, 1e9, -3.0])
def test_an_undecodable_answer_is_never_better_than_any_other(answer) -> None:
    truth = np.array([5.0, 12.0, 40.0])
    said, silent = np.array([answer, 12.0, 40.0]), np.array([np.nan, 12.0, 40.0])
    lost, given = score_answers(truth, silent), score_answers(truth, said)
    assert lost.log_rmse.mean >= given.log_rmse.mean
    assert lost.exact_match.mean <= given.exact_match.mean
    assert lost.undecodable.mean == pytest.approx(1 / 3)


def test_exact_match_tells_neighbours_of_18_digits_apart() -> None:
    truth = np.array([999999998000000001, 7, -4])
    said = np.array([999999998000000000, 7, float("nan")], dtype=object)
    found = score_answers(truth, said)
    assert (found.exact_match.mean, found.undecodable.mean) == (
        pytest.approx(1 / 3), pytest.approx(1 / 3))  # fmt: skip
    groups = dict(exact_match_by_group(truth, said, {"digits": np.array([9, 1, 1])}))
    assert {name: i.mean for name, i in groups.items()} == {"digits 1": 0.5, "digits 9": 0.0}
    assert score_answers(truth, truth.astype(object)).exact_match.mean == 1.0


def test_groups_count_their_own_rows() -> None:
    truth, said = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 3.0, np.nan])
    found = dict(exact_match_by_group(truth, said, {"op": np.array(["+", "+", "-", "-"])}))
    assert {name: (i.mean, i.n) for name, i in found.items()} == {
        "op +": (0.5, 2),
        "op -": (0.5, 2),
    }


WORDS = {i: str(i) for i in range(10)} | {10: "25", 11: "the", 12: "12345"}


def test_a_sure_model_means_the_number_it_says() -> None:
    digits = find_number_tokens(WORDS)
    said = torch.full((1, 3, 13), -50.0)
    for place, token in enumerate((10, 7, 11)):
        said[0, place, token] = 50.0
    assert 12 not in digits.digits
    places = digit_positions([10, 7, 11], digits)
    assert expected_numbers(said, [places], digits).item() == pytest.approx(257)


def test_the_regression_term_pulls_towards_the_right_number() -> None:
    digits = find_number_tokens(WORDS)
    said = torch.zeros(1, 2, 13, requires_grad=True)
    gap = squared_log_error(
        expected_numbers(said, [digit_positions([9, 9], digits)], digits), torch.tensor([99.0])
    )
    gap.sum().backward()
    assert said.grad[0, 0, 9] < 0 < said.grad[0, 0, 0]
    assert said.grad[0, :, 10:].eq(0).all()


def test_masses_add_up_to_one() -> None:
    found = fisher_mass(
        {"a": torch.ones(3), "b": torch.ones(1)}, lambda n: (1, "x" if n == "a" else "y")
    )
    assert found == {(1, "x"): 0.75, (1, "y"): 0.25}


def test_drift_is_relative_to_the_length_of_the_weights() -> None:
    start = {"a": torch.tensor([3.0, 4.0])}
    moved = {"a": torch.tensor([3.0, 5.0])}
    assert weight_drift(moved, start, lambda n: (0, n)) == {(0, "a"): pytest.approx(0.2)}


def test_the_top_entries_are_found_across_weights() -> None:
    fisher = {"a": torch.tensor([[1.0, 9.0]]), "b": torch.tensor([5.0, 7.0])}
    found = largest_entries(fisher, 3)
    assert found.keys() == {("a", 1), ("b", 1), ("b", 0)}
    assert found.values.tolist() == [9, 7, 5]
    assert values_at({name: 2 * value for name, value in fisher.items()}, found).tolist() == [
        18,
        14,
        10,
    ]


def test_a_fisher_overlaps_wholly_with_itself() -> None:
    fisher = {name: value.square() for name, value in weights(0).items()}
    assert jaccard(largest_entries(fisher, 50), largest_entries(fisher, 50)) == 1
    assert (
        jaccard(
            largest_entries(fisher, 5), largest_entries({n: 1 / v for n, v in fisher.items()}, 5)
        )
        == 0
    )
    rng = np.random.default_rng(0)
    assert rank_correlation(fisher, {n: 3 * v for n, v in fisher.items()}, rng=rng) == (
        pytest.approx(1)
    )
    assert rank_correlation(fisher, {n: -v for n, v in fisher.items()}, rng=rng) == (
        pytest.approx(-1)
    )


def test_the_moving_average_of_a_constant_is_the_constant() -> None:
    np.testing.assert_allclose(moving_average(np.full(9, 2.5), 4), 2.5)
    np.testing.assert_allclose(moving_average(np.arange(5.0), 3), [0.5, 1, 2, 3, 3.5])


@pytest.mark.parametrize("way", ["pca", "tsne"])
def test_equal_rows_lie_on_equal_points(way) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 6))
    found = project_rows({"base": rows, "same": rows, "other": rows + 5}, way)
    near = np.abs(found["base"] - found["same"]).max()
    assert near < 0.2 * np.abs(found["base"] - found["other"]).max()
