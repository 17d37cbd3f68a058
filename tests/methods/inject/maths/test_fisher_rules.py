"""Squared per-example gradients: the batched way against plain autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutaway.methods.inject.maths.example_hooks import PerExampleHooks
from cutaway.methods.inject.maths.fisher_rules import (
    DenseUse,
    EmbeddingUse,
    NoGradientRule,
    OuterProductUse,
    add_squared_gradients,
)
from cutaway.methods.inject.maths.loop import FisherSample, add_by_autograd


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


def test_the_fisher_of_a_one_parameter_logistic_is_its_closed_form() -> None:
    weight = nn.Linear(1, 1, bias=False).requires_grad_(False)
    weight.weight.fill_(0.7)
    x = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0])
    y = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    total = {"weight": torch.zeros(1, 1)}
    for one, label in zip(x, y, strict=True):
        add_by_autograd(
            weight,
            total,
            lambda one=one, label=label: F.binary_cross_entropy_with_logits(
                weight(one.reshape(1, 1))[:, 0], label[None]
            ),
        )
    closed = (((0.7 * x).sigmoid() - y) * x).square().sum()
    torch.testing.assert_close(total["weight"][0, 0], closed)


def test_the_expected_fisher_of_a_logistic_needs_no_labels() -> None:
    x, w = torch.tensor([-1.0, 0.5, 2.0]), 0.3
    p = (w * x).sigmoid()
    over_labels = p * ((p - 1) * x).square() + (1 - p) * (p * x).square()
    torch.testing.assert_close(over_labels, p * (1 - p) * x.square())


def test_a_weight_used_twice_is_added_before_it_is_squared() -> None:
    total = torch.zeros(3)
    one = torch.tensor([[1.0, 2.0, 3.0]])
    add_squared_gradients(total, [DenseUse(one), DenseUse(-one)])
    assert total.eq(0).all()


def test_rows_that_were_read_and_rows_that_were_said_meet_in_one_gradient() -> None:
    rng = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 4, 9, generator=rng), torch.randn(2, 4, 3, generator=rng)
    ids, grad = torch.tensor([[1, 1, 8], [0, 4, 1]]), torch.randn(2, 3, 3, generator=rng)
    total = torch.zeros(9, 3)
    add_squared_gradients(total, [OuterProductUse(left, right), EmbeddingUse(ids, grad)])
    expected = torch.zeros(9, 3)
    for i in range(2):
        whole = left[i].T @ right[i]
        expected += whole.index_add(0, ids[i], grad[i]).square()
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_blocks_of_rows_give_the_same_sums_as_whole_products(tokens, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.methods.inject.maths.fisher_rules.BUFFER_SIZE", 8)
    left, right = torch.randn(3, tokens, 10), torch.randn(3, tokens, 4)
    total = torch.ones(10, 4)
    add_squared_gradients(total, [OuterProductUse(left, right)])
    products = torch.einsum("bto,bti->boi", left, right)
    torch.testing.assert_close(total, 1 + products.square().sum(0))


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.stack = nn.Parameter(torch.randn(2, 3, 3))

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return x @ self.stack[which]


def test_a_weight_without_a_rule_is_told_and_not_guessed() -> None:
    odd = Odd().requires_grad_(False)
    total = zeros(odd)

    def run() -> torch.Tensor:
        return odd(odd.table(torch.tensor([[0, 1], [2, 3]])), 1).sum(dim=(1, 2))

    with pytest.raises(NoGradientRule), PerExampleHooks(odd, total) as watch:
        watch.backward(watch.forward(2, run))


def test_a_weight_used_as_a_matrix_and_elementwise_is_told_and_leaves_the_sum_alone() -> None:
    total = torch.ones(2, 3)
    uses = [
        OuterProductUse(torch.ones(1, 4, 2), torch.ones(1, 4, 3)),
        DenseUse(torch.ones(1, 2, 3)),
    ]
    with pytest.raises(NoGradientRule, match="matrix and elementwise"):
        add_squared_gradients(total, uses)
    assert torch.equal(total, torch.ones(2, 3))


def test_a_sketch_tells_fishers_apart(net) -> None:
    ids = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(3))
    total = by_loop(net, ids)
    sketch = FisherSample(total)
    for name, value in total.items():
        sketch.add(name, value.sqrt())
    assert sketch.difference(total)[0] < 1e-5
    total["shared.weight"] *= 1.01
    worst, name = sketch.difference(total)
    assert name == "shared.weight"
    assert worst == pytest.approx(0.01, rel=0.1)
