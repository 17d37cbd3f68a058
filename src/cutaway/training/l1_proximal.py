"""An L1 penalty on the distance from the starting weights: as a loss term, or as a proximal step.

The gradient of the penalty makes a weight oscillate around its start. The proximal step moves each
weight towards its start and stops there, so most weights stay exactly unchanged.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.core.params import check_same_parameters
from cutaway.training.plan import SCHEDULES, TrainingPlan

StepLoss = Callable[[int], Mapping[str, Tensor]]
AfterStep = Callable[[], None]


class _L1Distance(torch.autograd.Function):
    """sum |weight - start|; the backward pass recomputes the signs instead of storing them."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, start: Tensor) -> Tensor:
        ctx.save_for_backward(weight, start)
        return (weight - start).abs().sum(dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        weight, start = ctx.saved_tensors
        return (weight - start).sign().mul_(grad.to(weight.dtype)), None


def l1_distance(params: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """The sum of |weight - start| over all weights."""
    check_same_parameters(start, params=params)
    return torch.stack([_L1Distance.apply(params[name], start[name]) for name in start]).sum()


@torch.no_grad()
def l1_proximal_step(params: Mapping[str, Tensor], start: Mapping[str, Tensor], far: float) -> None:
    """Move every weight by `far` towards its start, and not past it, in place."""
    check_same_parameters(start, params=params)
    for name, value in params.items():
        away = torch.nn.functional.softshrink(value - start[name], far)
        value.copy_(start[name] + away)


def with_l1_proximal(
    loss: StepLoss,
    params: Mapping[str, Tensor],
    l1: float,
    plan: TrainingPlan,
    after: AfterStep | None = None,
) -> tuple[StepLoss, AfterStep]:
    """The loss, and the function to call after each step: a proximal step of lr x l1.

    Training may resume at any step, so the step is the one the loss was last computed for.
    """
    if plan.optimizer != "sgd":
        raise BadSpec(
            f"l1_way 'threshold' is for --optimizer sgd, got {plan.optimizer!r}: adamw has a "
            "different step size for each weight. Use --l1-way gradient."
        )
    start = {name: value.detach().clone() for name, value in params.items()}
    current = [0]

    def loss_at(step: int) -> Mapping[str, Tensor]:
        current[0] = step
        return loss(step)

    def project() -> None:
        l1_proximal_step(params, start, l1 * plan.lr * SCHEDULES[plan.schedule](current[0], plan))
        if after is not None:
            after()

    return loss_at, project
