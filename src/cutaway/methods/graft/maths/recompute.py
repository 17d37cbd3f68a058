"""A forward pass that keeps less for the backward pass: products are made again.

Autograd keeps every input of a matrix product. Many of those are a product of two tensors, or
an activation of one, that autograd keeps anyway: a norm's output, an MLP's gated middle. Under
`remaking` such a tensor isn't kept but made again from them when its gradient is due: the same
operation on the same numbers, so every gradient keeps every bit, for a third of the memory of a
block less and a few cheap operations more.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

Recompute = Callable[[], Tensor]
# A view of a contiguous tensor: the same numbers under another shape.
VIEW_OPS = frozenset({"ViewBackward0", "UnsafeViewBackward0"})


class RecomputedTensor(NamedTuple):
    """How a tensor is made again."""

    make: Recompute
    shape: torch.Size


class SavedTensor(NamedTuple):
    """A tensor that is kept, and how often it had been changed in place by then."""

    kept: Tensor
    version: int


PackedTensor = RecomputedTensor | SavedTensor


def _recompute_product(node: Any) -> Recompute | None:
    # Autograd keeps a factor only for the gradient of the other one.
    if node._saved_self is None or node._saved_other is None:
        return None
    return lambda: node._saved_self * node._saved_other


def _recompute_silu(node: Any) -> Recompute:
    return lambda: functional.silu(node._saved_self)


def _recompute_gelu(node: Any) -> Recompute:
    return lambda: functional.gelu(node._saved_self, approximate=node._saved_approximate)


RECOMPUTABLE_OPS: dict[str, Callable[[Any], Recompute | None]] = {
    "MulBackward0": _recompute_product,
    "SiluBackward0": _recompute_silu,
    "GeluBackward0": _recompute_gelu,
}


def recompute_cheap_ops() -> saved_tensors_hooks:
    """A context: what is computed in it keeps products and activations as their recipe only."""
    return saved_tensors_hooks(_pack, _unpack)


def _pack(kept: Tensor) -> PackedTensor:
    # Changed since it was made: the recipe would give what it was before.
    node = kept.grad_fn if kept._version == 0 else None
    while node is not None and node.name() in VIEW_OPS:
        node = node.next_functions[0][0]
    recipe = RECOMPUTABLE_OPS.get(node.name()) if node is not None else None
    make = recipe(node) if recipe is not None else None
    # Detached: a node that kept its own output would hold itself for ever.
    return (
        SavedTensor(kept.detach(), kept._version)
        if make is None
        else RecomputedTensor(make, kept.shape)
    )


def _unpack(packed: PackedTensor) -> Tensor:
    if isinstance(packed, RecomputedTensor):
        with torch.no_grad():
            return packed.make().view(packed.shape)
    # Autograd's own check doesn't look at what hooks have packed.
    if packed.kept._version != packed.version:
        raise RuntimeError(
            "A tensor that the backward pass needs was changed in place: it has version "
            f"{packed.kept._version} instead of {packed.version}."
        )
    return packed.kept
