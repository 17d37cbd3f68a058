"""Fine-tuning's own arithmetic: the pull towards where the weights started."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.params import check_same_parameters


class _L1Distance(torch.autograd.Function):
    """sum |weight - start|; backwards only signs, so no difference has to be kept."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, start: Tensor) -> Tensor:
        ctx.save_for_backward(weight, start)
        return (weight - start).abs().sum(dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        weight, start = ctx.saved_tensors
        return (weight - start).sign().mul_(grad.to(weight.dtype)), None


def l1_distance(params: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """How far all weights together are from where they started: the sum of |difference|."""
    check_same_parameters(start, params=params)
    terms = [_L1Distance.apply(params[name], start[name]) for name in start]
    return torch.stack(terms).sum()


@torch.no_grad()
def l1_proximal_step(params: Mapping[str, Tensor], start: Mapping[str, Tensor], far: float) -> None:
    """Every weight goes `far` towards where it started and stops there, in place.

    This is the proximal step of an l1 penalty: a weight that is pushed away by less than the
    penalty comes to rest exactly at its start, where a gradient of the penalty lets it tremble.
    """
    check_same_parameters(start, params=params)
    for name, value in params.items():
        away = torch.nn.functional.softshrink(value - start[name], far)
        value.copy_(start[name] + away)
