"""Squared per-example gradients: the batched way against plain autograd."""

import pytest
import torch
from torch import nn

from cutaway.methods.inject.maths.fisher_rules import (
    DenseUse,
    EmbeddingUse,
    NoGradientRule,
    OuterProductUse,
    add_squared_gradients,
)


def zeros(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(p) for name, p in module.named_parameters()}


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


def test_a_weight_used_as_a_matrix_and_elementwise_is_told_and_leaves_the_sum_alone() -> None:
    total = torch.ones(2, 3)
    uses = [
        OuterProductUse(torch.ones(1, 4, 2), torch.ones(1, 4, 3)),
        DenseUse(torch.ones(1, 2, 3)),
    ]
    with pytest.raises(NoGradientRule, match="matrix and elementwise"):
        add_squared_gradients(total, uses)
    assert torch.equal(total, torch.ones(2, 3))
