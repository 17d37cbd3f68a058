"""What holds weights near where they were: EWC, L2-SP, and the distance between two answers.

`penalty` is the formula; `pull` is the same number with its gradient, made in one pass over the
weights in blocks that stay in the processor's cache: training with it costs little more than
without.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.core.params import check_same_parameters

Params = Mapping[str, Tensor]
# Numbers in a block: three of them fit into the second-level cache.
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
    """`penalty`, differentiable in `params`, its gradient made with it."""
    _need_same_weights(params, anchor, fisher, strength)
    names = list(anchor)
    weights = None if fisher is None else [fisher[name] for name in names]
    starts = [anchor[name] for name in names]
    found: Tensor = _FusedPenalty.apply(
        starts, weights, strength, *[params[name] for name in names]
    )
    return found


def _need_same_weights(
    params: Params, anchor: Params, fisher: Params | None, strength: float
) -> None:
    """Refused unless the weights are the anchor's, and the Fisher's where there is one."""
    need_strength(strength)
    check_same_parameters(anchor, params=params)
    if fisher is not None:
        check_same_parameters(anchor, fisher=fisher)


def need_strength(strength: float) -> float:
    """The strength; BadSpec below 0: that would push the weights away."""
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
        """The penalty; what would be the gradient is kept for backward."""
        total = torch.zeros((), dtype=torch.float64, device=params[0].device)
        made = []
        for i, param in enumerate(params):
            grad = torch.empty_like(param, memory_format=torch.contiguous_format)
            _write_gradient(
                grad, param, starts[i], fishers[i] if fishers else None, strength, total
            )
            made.append(grad)
        ctx.made = made
        return (0.5 * total).to(params[0].dtype)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        """The kept gradients, scaled by what comes back; they are given away, so only once."""
        (scale,) = outputs
        # Nothing else may hold them: only then autograd takes them over instead of copying.
        made, ctx.made = ctx.made, None
        if made is None:
            raise RuntimeError("The pull's gradients are gone: call pull again for each backward.")
        if float(scale) != 1.0:
            torch._foreach_mul_(made, scale)
        return (None, None, None, *made)


def _write_gradient(
    grad: Tensor,
    param: Tensor,
    start: Tensor,
    fisher: Tensor | None,
    strength: float,
    total: Tensor,
) -> None:
    """grad = strength F (w - w0), and `total` grows by strength F (w - w0)^2."""
    tensors = [grad, param, start] + ([] if fisher is None else [fisher])
    for made, here, there, *weight in _blocks([t.detach().reshape(-1) for t in tensors]):
        step = torch.sub(here, there)
        torch.mul(step, strength, out=made)
        if weight:
            made.mul_(weight[0])
        total += torch.dot(step, made)


def _blocks(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, tensors[0].numel(), BLOCK):
        yield tuple(tensor[start : start + BLOCK] for tensor in tensors)


def kl_from_base(
    base: Float[Tensor, "batch places vocab"],
    now: Float[Tensor, "batch places vocab"],
    asked: Bool[Tensor, "batch places"],
) -> Float[Tensor, ""]:
    """KL from what the base says to what is said now, mean over the places that are asked."""
    each = torch.nn.functional.kl_div(
        now.float().log_softmax(dim=-1),
        base.float().log_softmax(dim=-1),
        log_target=True,
        reduction="none",
    ).sum(dim=-1)
    return (each * asked).sum() / asked.sum()


def normalise_fisher(fisher: Params) -> dict[str, Tensor]:
    """The Fisher over its mean, so that a strength pulls as hard on average as in L2-SP."""
    count = sum(value.numel() for value in fisher.values())
    mean = sum(float(value.double().sum()) for value in fisher.values()) / count
    if not mean > 0:
        raise BadSpec("The Fisher is 0 everywhere: its examples don't move any weight.")
    return {name: value / mean for name, value in fisher.items()}


def add_lora_gradient(
    left: Tensor,
    right: Tensor,
    delta: Float[Tensor, "out into"],
    fisher: Float[Tensor, "out into"],
    strength: float,
    scale: float,
) -> None:
    """Add the penalty's gradient to a low-rank change: delta = scale * right @ left.

    `left` (rank, into) and `right` (out, rank) hold gradients already, or get their first.
    """
    back = strength * fisher * delta
    for weight, grad in ((left, scale * right.T @ back), (right, scale * back @ left.T)):
        weight.grad = grad.to(weight) if weight.grad is None else weight.grad + grad.to(weight)
