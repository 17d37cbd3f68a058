"""Batched per-example gradients equal a loop over examples."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutaway.methods.inject.maths.example_hooks import PerExampleHooks
from cutaway.methods.inject.maths.fisher_rules import (
    NoGradientRule,
)
from cutaway.methods.inject.maths.loop import add_by_autograd


def zeros(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(p) for name, p in module.named_parameters()}


class Net(nn.Module):
    """Tied embeddings, a shared layer, positions looked up once for all, a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 6), nn.Embedding(9, 6)
        self.shared, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1])[None])
        for _ in range(2):
            hidden = hidden + torch.tanh(self.shared(self.norm(hidden)))
        return self.out(hidden)


def loss(net: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    said = net(ids)[:, :-1]
    each = F.cross_entropy(said.transpose(1, 2), ids[:, 1:], reduction="none")
    return each.mean(dim=1)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().requires_grad_(False)


def by_loop(net: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    total = zeros(net)
    for row in ids:
        add_by_autograd(net, total, lambda row=row: loss(net, row[None]))
    return total


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
