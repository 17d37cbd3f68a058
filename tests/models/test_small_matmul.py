"""Products of a few rows: every variant gives the plain product, and models are restored."""

import itertools

import pytest
import torch
from torch import nn

from cutaway.models.small_matmul import (
    MatmulVariant,
    fastest_variants,
    linear_layers,
    measure_variants,
    tuned_small_matmuls,
)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("extra", [0, 1, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_variant_gives_the_plain_product(transposed: bool, extra: int, count: int) -> None:
    rng = torch.Generator().manual_seed(count)
    rows, weight = torch.randn(count, 24, generator=rng), torch.randn(40, 24, generator=rng)
    found = MatmulVariant(transposed, count + extra)(rows, weight)
    assert found.is_contiguous()
    torch.testing.assert_close(found, rows @ weight.T)


def test_the_fastest_variant_is_used_even_if_it_multiplies_more_rows() -> None:
    seconds = {
        MatmulVariant(False, 1): 1.0, MatmulVariant(True, 1): 1.2,
        MatmulVariant(False, 2): 3.0, MatmulVariant(True, 2): 2.9,
        MatmulVariant(False, 3): 2.0, MatmulVariant(True, 3): 1.5,
    }  # fmt: skip
    assert fastest_variants(seconds, 3) == {2: MatmulVariant(True, 3), 3: MatmulVariant(True, 3)}


def test_a_variant_that_is_hardly_faster_is_not_used() -> None:
    assert fastest_variants({MatmulVariant(False, 1): 1.0, MatmulVariant(True, 1): 0.97}, 1) == {}


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt"])
@torch.inference_mode()
def test_logits_stay_the_same_and_the_model_is_restored(family, lm_of) -> None:
    lm = lm_of(family)
    ids = torch.randint(5, lm.vocab, (1, 3), generator=torch.Generator().manual_seed(0))
    plain = lm.module(ids).logits
    shapes = {tuple(linear.weight.shape) for linear in linear_layers(lm)}
    with tuned_small_matmuls(lm, {shape: {3: MatmulVariant(True, 4)} for shape in shapes}):
        assert "forward" in linear_layers(lm)[0].__dict__
        torch.testing.assert_close(lm.module(ids).logits, plain, rtol=1e-4, atol=1e-5)
    assert torch.equal(lm.module(ids).logits, plain)
    assert not any("forward" in linear.__dict__ for linear in linear_layers(lm))


def test_variants_are_chosen_by_the_clock(lm_of) -> None:
    ticks = itertools.count()
    variants = measure_variants(lm_of("llama"), 4, clock=lambda: float(next(ticks)))
    # Every measurement takes one tick: nothing is clearly faster than the plain product.
    assert all(not by_count for by_count in variants.values())


def test_a_bias_is_added_once() -> None:
    linear = nn.Linear(4, 6)
    rows = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    found = MatmulVariant(True, 3)(rows, linear.weight) + linear.bias
    torch.testing.assert_close(found, linear(rows))
