"""Which weights require gradients: the given ones inside the block, as before after it."""

import pytest
from torch import nn

from cutaway.training.gradients import frozen_others, gradients_enabled


def flags(module: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in module.parameters()]


def test_given_weights_require_gradients_within_the_block_and_keep_none() -> None:
    module = nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    with gradients_enabled(dict(module.named_parameters())):
        assert flags(module) == [True, True]
        module(module.weight).sum().backward()
    assert flags(module) == [False, True]
    assert module.weight.grad is None and module.bias.grad is None


def test_other_weights_require_none_within_the_block() -> None:
    module = nn.Linear(2, 2)
    with frozen_others(module, {"weight": module.weight}):
        assert flags(module) == [True, False]
    assert flags(module) == [True, True]


@pytest.mark.parametrize("block", [gradients_enabled, None])
def test_an_error_inside_restores_them(block) -> None:
    module = nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    params = dict(module.named_parameters())
    inside = block(params) if block else frozen_others(module, {})
    with pytest.raises(KeyError), inside:
        raise KeyError
    assert flags(module) == [False, True]
