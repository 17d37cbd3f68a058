"""The pull towards the start."""

import pytest
import torch

from cutaway.core.errors import Mismatch
from cutaway.methods.finetune import l1_distance

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
