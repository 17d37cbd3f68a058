"""Batched per-example gradients equal a loop over examples."""

import pytest
import torch
from torch import nn

from cutaway.methods.inject.maths.example_hooks import PerExampleHooks
from cutaway.methods.inject.maths.fisher_rules import (
    NoGradientRule,
)
from cutaway.methods.inject.maths.loop import add_by_autograd
from tests.methods.inject.maths.toy_net import Net, by_loop, loss, zeros


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().requires_grad_(False)


def batched(net: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    total = zeros(net)
    with PerExampleHooks(net, total) as watch:
        watch.backward(watch.forward(len(ids), lambda: loss(net, ids)))
    return total


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.stack = nn.Parameter(torch.randn(2, 3, 3))

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return x @ self.stack[which]


def test_the_batched_way_equals_one_example_after_the_other(net) -> None:
    ids = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    expected = by_loop(net, ids)
    for name, value in batched(net, ids).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-9)


def test_the_square_of_the_batch_gradient_is_something_else(net) -> None:
    ids = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    wrong = zeros(net)
    add_by_autograd(net, wrong, lambda: loss(net, ids).mean() * len(ids))
    assert not torch.allclose(wrong["out.bias"], batched(net, ids)["out.bias"], rtol=0.1)


def test_order_and_batch_size_change_nothing(net) -> None:
    ids = torch.randint(11, (6, 7), generator=torch.Generator().manual_seed(2))
    whole, parts = batched(net, ids), zeros(net)
    for part in ids[torch.tensor([3, 1, 5, 0, 4, 2])].split([1, 4, 1]):
        for name, value in batched(net, part).items():
            parts[name] += value
    for name, value in whole.items():
        torch.testing.assert_close(value, parts[name], rtol=1e-5, atol=1e-9)


def test_weights_are_frozen_again_and_hooks_are_gone(net) -> None:
    ids = torch.randint(11, (2, 7))
    batched(net, ids)
    by_loop(net, ids)
    assert not any(p.requires_grad or p.grad is not None for p in net.parameters())
    assert not any(part._forward_hooks for part in net.modules())


def test_a_weight_without_a_rule_is_told_and_not_guessed() -> None:
    odd = Odd().requires_grad_(False)
    total = zeros(odd)

    def run() -> torch.Tensor:
        return odd(odd.table(torch.tensor([[0, 1], [2, 3]])), 1).sum(dim=(1, 2))

    with pytest.raises(NoGradientRule), PerExampleHooks(odd, total) as watch:
        watch.backward(watch.forward(2, run))
