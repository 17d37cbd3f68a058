"""Penalties, numbers, scores, overlaps: laws on the smallest cases."""

import pytest
import torch

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.methods.inject.maths.penalty import (
    add_lora_gradient,
    fused_penalty,
    kl_from_base,
    normalise_fisher,
    penalty,
)

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


def test_the_gradient_is_handed_over_and_not_copied() -> None:
    params = trained(0)
    held = fused_penalty(params, weights(1), None, 1.0)
    place = held.grad_fn.gradients[2].data_ptr()
    held.backward(retain_graph=True)
    assert params["c"].grad.data_ptr() == place
    with pytest.raises(RuntimeError, match="call fused_penalty before each"):
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
