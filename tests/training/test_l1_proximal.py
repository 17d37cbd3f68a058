"""The pull towards the start."""

import pytest
import torch

from cutaway.core.errors import Mismatch
from cutaway.training.l1_proximal import l1_distance, l1_proximal_step

RNG = torch.Generator().manual_seed(0)
START = {"a": torch.randn(3, 4, generator=RNG), "b": torch.randn(5, generator=RNG)}


def moved() -> dict[str, torch.Tensor]:
    return {name: (value + 0.1).requires_grad_(True) for name, value in START.items()}


def test_value_and_gradient_are_those_of_the_plain_sum() -> None:
    ours, theirs = moved(), moved()
    plain = sum((theirs[name] - START[name]).abs().sum() for name in START)
    (3 * l1_distance(ours, START)).backward()
    (3 * plain).backward()
    torch.testing.assert_close(l1_distance(ours, START), plain)
    for name in START:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad)


def test_at_the_start_there_is_no_distance_and_no_pull() -> None:
    still = {name: value.clone().requires_grad_(True) for name, value in START.items()}
    found = l1_distance(still, START)
    found.backward()
    assert float(found.detach()) == 0.0
    assert all(not value.grad.any() for value in still.values())


def test_weights_are_matched_by_name() -> None:
    with pytest.raises(Mismatch, match="lacks"):
        l1_distance({"a": START["a"]}, START)


@pytest.mark.parametrize("far", [0.01, 0.1, 1.0])
def test_drawing_back_finds_the_least_of_half_the_square_and_the_penalty(far: float) -> None:
    pushed = {n: v + torch.randn(v.shape, generator=RNG) * 0.3 for n, v in START.items()}
    after = {name: value.clone() for name, value in pushed.items()}
    l1_proximal_step(after, START, far)
    for name in START:
        # The penalised cost of every weight, on a fine grid between where it is and its start.
        way = torch.linspace(0, 1, 2001).view(-1, *[1] * START[name].ndim)
        tried = pushed[name] + way * (START[name] - pushed[name])

        def cost(at: torch.Tensor, n: str = name) -> torch.Tensor:
            return 0.5 * (at - pushed[n]).square() + far * (at - START[n]).abs()

        assert bool((cost(after[name]) <= cost(tried).min(dim=0).values + 1e-6).all())


def test_what_was_pushed_less_rests_exactly_at_its_start_and_nothing_passes_it() -> None:
    small = {name: value + 1e-3 * value.sign() for name, value in START.items()}
    l1_proximal_step(small, START, 2e-3)
    assert all(torch.equal(small[name], START[name]) for name in START)
    large = {name: value + 1.0 for name, value in START.items()}
    l1_proximal_step(large, START, 0.25)
    for name in START:
        torch.testing.assert_close(large[name], START[name] + 0.75)
