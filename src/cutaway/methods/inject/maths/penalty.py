"""Regularisation terms: EWC, L2-SP, and the KL divergence from the base model.

`penalty` is the plain formula. `fused_penalty` computes the same value and its gradient in one pass
over the weights, in blocks that fit into the processor's cache, so that it adds little to the cost
of a training step.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.core.float64 import float64_device, to_float64
from cutaway.core.params import check_same_parameters

Params = Mapping[str, Tensor]
# Elements of a block: three blocks fit into the second-level cache.
BLOCK = 1 << 16


def penalty(
    params: Params, anchor: Params, fisher: Params | None, strength: float
) -> Float[Tensor, ""]:
    """strength/2 times the Fisher-weighted squared distance; without a Fisher, L2-SP."""
    _need_same_weights(params, anchor, fisher, strength)
    terms = [
        (torch.ones_like(start) if fisher is None else fisher[name])
        .mul((params[name] - start).square())
        .sum()
        for name, start in anchor.items()
    ]
    return 0.5 * strength * torch.stack(terms).sum()


def fused_penalty(
    params: Params, anchor: Params, fisher: Params | None, strength: float
) -> Float[Tensor, ""]:
    """`penalty`, differentiable in `params`, with its gradient computed in the same pass."""
    _need_same_weights(params, anchor, fisher, strength)
    fishers = None if fisher is None else [fisher[name] for name in anchor]
    current = [params[name] for name in anchor]
    value: Tensor = _FusedPenalty.apply(list(anchor.values()), fishers, strength, *current)
    return value


def _need_same_weights(
    params: Params, anchor: Params, fisher: Params | None, strength: float
) -> None:
    """Raise unless params, anchor and Fisher have the same names and shapes."""
    need_strength(strength)
    check_same_parameters(anchor, params=params)
    if fisher is not None:
        check_same_parameters(anchor, fisher=fisher)


def need_strength(strength: float) -> float:
    """The strength; BadSpec below 0, which would push the weights away from their start."""
    if not strength >= 0:
        raise BadSpec(f"strength must be 0 or more, got {strength!r}.")
    return strength


class _FusedPenalty(torch.autograd.Function):
    """Value and gradient in one pass."""

    @staticmethod
    def forward(
        ctx: Any,
        starts: Sequence[Tensor],
        fishers: Sequence[Tensor] | None,
        strength: float,
        *params: Tensor,
    ) -> Tensor:
        """The penalty; its gradient is stored for the backward pass."""
        where = float64_device(params[0].device)
        total = torch.zeros((), dtype=torch.float64, device=where)
        gradients = []
        for i, param in enumerate(params):
            grad = torch.empty_like(param, memory_format=torch.contiguous_format)
            _write_gradient(
                grad, param, starts[i], fishers[i] if fishers else None, strength, total
            )
            gradients.append(grad)
        ctx.gradients = gradients
        return (0.5 * total).to(params[0])

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        """The stored gradients times the incoming one; they can be used only once."""
        (scale,) = outputs
        # Without another reference to them, autograd takes the tensors over instead of copying.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("The gradients were used: call fused_penalty before each backward.")
        if float(scale) != 1.0:
            torch._foreach_mul_(gradients, scale)
        return (None, None, None, *gradients)


def _write_gradient(
    grad: Tensor,
    param: Tensor,
    start: Tensor,
    fisher: Tensor | None,
    strength: float,
    total: Tensor,
) -> None:
    """Set grad = strength F (w - w0), and add strength F (w - w0)^2 to `total`."""
    tensors = [grad, param, start] + ([] if fisher is None else [fisher])
    for out, weight, initial, *importance in _blocks([t.detach().reshape(-1) for t in tensors]):
        step = torch.sub(weight, initial)
        torch.mul(step, strength, out=out)
        if importance:
            out.mul_(importance[0])
        total += torch.dot(step, out).to(total)


def _blocks(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, tensors[0].numel(), BLOCK):
        yield tuple(tensor[start : start + BLOCK] for tensor in tensors)


def kl_from_base(
    base: Float[Tensor, "batch places vocab"],
    now: Float[Tensor, "batch places vocab"],
    mask: Bool[Tensor, "batch places"],
) -> Float[Tensor, ""]:
    """KL divergence KL(base || now), averaged over the positions in the mask."""
    each = torch.nn.functional.kl_div(
        now.float().log_softmax(dim=-1),
        base.float().log_softmax(dim=-1),
        log_target=True,
        reduction="none",
    ).sum(dim=-1)
    return (each * mask).sum() / mask.sum()


def normalise_fisher(fisher: Params) -> dict[str, Tensor]:
    """The Fisher divided by its mean, so that strengths are comparable with those of L2-SP."""
    mean = fisher_mean(fisher)
    return {name: value / mean for name, value in fisher.items()}


def fisher_mean(fisher: Params) -> float:
    """The mean over all weights; BadSpec if it is 0."""
    count = sum(value.numel() for value in fisher.values())
    mean = sum(float(to_float64(value).sum()) for value in fisher.values()) / count
    if not mean > 0:
        raise BadSpec("The Fisher is 0 everywhere: its examples have no gradient.")
    return mean


def add_lora_gradient(
    left: Tensor,
    right: Tensor,
    delta: Float[Tensor, "out into"],
    fisher: Float[Tensor, "out into"],
    strength: float,
    scale: float,
) -> None:
    """Add the penalty's gradient to the factors of a LoRA update, delta = scale * right @ left.

    `left` is (rank, into), `right` is (out, rank).
    """
    back = strength * fisher * delta
    for weight, grad in ((left, scale * right.T @ back), (right, scale * back @ left.T)):
        weight.grad = grad.to(weight) if weight.grad is None else weight.grad + grad.to(weight)
