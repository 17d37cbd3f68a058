"""The baseline masks: exact sizes, changed weights first, per-example gradients."""

import pytest
import torch

from cutaway.core.errors import Missing
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs, TaskGradients, task_gradients
from cutaway.methods.graft.maths.soft_mask import (
    gradients_enabled,
)
from tests.methods.graft.maths.toy import generator, loss_of


@pytest.mark.parametrize("kind", MASKS)
def test_every_baseline_has_exactly_the_requested_size(pair, kind: str) -> None:
    module, base, tuned, x, y = pair
    params = dict(module.named_parameters())
    with gradients_enabled(params, base):
        found = task_gradients(
            params, [loss_of(module, x[i : i + 1], y[i : i + 1]) for i in range(8)]
        )
    material = MaskInputs(base, tuned, found)
    masks = [MASKS[kind](material, keep, generator()) for keep in (1, 10, 15)]
    assert [mask.size for mask in masks] == [1, 10, 15]
    again = MASKS[kind](material, 15, generator())
    assert again.same(masks[2])


def test_all_biases_are_chosen_when_fewer_than_requested(pair) -> None:
    _, base, tuned, *_ = pair
    mask = MASKS["biases"](MaskInputs(base, tuned), 100, generator())
    assert mask.size == 15
    assert set(mask.indices) == {"0.bias", "2.bias"}
    plain = {n: v for n, v in base.items() if "bias" not in n}
    with pytest.raises(Missing, match="no biases"):
        MASKS["biases"](MaskInputs(plain, plain), 3, generator())


@pytest.mark.parametrize("kind", sorted(set(MASKS) - {"biases", "uniform"}))
def test_weights_that_moved_are_chosen_before_any_other(kind: str) -> None:
    base = {"w": torch.zeros(500)}
    there = torch.arange(0, 500, 50)
    tuned = {"w": torch.zeros(500).index_fill_(0, there, 1.0)}
    slope = {"w": torch.rand(500, generator=generator()) + 0.1}
    material = MaskInputs(base, tuned, TaskGradients(slope, slope))
    chosen = MASKS[kind](material, 10, generator()).indices["w"]
    assert chosen.tolist() == there.tolist()
    assert set(there.tolist()) <= set(MASKS[kind](material, 12, generator()).indices["w"].tolist())


def test_gradients_are_means_over_single_examples(pair) -> None:
    module, base, _, x, y = pair
    params = dict(module.named_parameters())
    with gradients_enabled(params, base):
        found = task_gradients(
            params, [loss_of(module, x[i : i + 1], y[i : i + 1]) for i in range(32)]
        )
        whole = torch.autograd.grad(loss_of(module, x, y)(), list(params.values()))
    for name, grad in zip(params, whole, strict=True):
        torch.testing.assert_close(found.mean[name], grad, atol=1e-6, rtol=1e-4)
        assert bool((found.square[name] >= found.mean[name].square() - 1e-7).all())
    with pytest.raises(Missing, match="at least one"):
        task_gradients(params, [])
