"""A forward pass that keeps less for the backward pass: products are made again.

Autograd keeps every input of a matrix product. Many of those are a product of two tensors, or
an activation of one, that autograd keeps anyway: a norm's output, an MLP's gated middle. Under
`remaking` such a tensor isn't kept but made again from them when its gradient is due: the same
operation on the same numbers, so every gradient keeps every bit, for a third of the memory of a
block less and a few cheap operations more.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

Make = Callable[[], Tensor]
Packed = Tensor | tuple[Make, torch.Size]
# A view of a contiguous tensor: the same numbers under another shape.
VIEWS = frozenset({"ViewBackward0", "UnsafeViewBackward0"})


def _product(node: Any) -> Make | None:
    # Autograd keeps a factor only for the gradient of the other one.
    if node._saved_self is None or node._saved_other is None:
        return None
    return lambda: node._saved_self * node._saved_other


def _silu(node: Any) -> Make:
    return lambda: functional.silu(node._saved_self)


def _gelu(node: Any) -> Make:
    return lambda: functional.gelu(node._saved_self, approximate=node._saved_approximate)


REMADE: dict[str, Callable[[Any], Make | None]] = {
    "MulBackward0": _product,
    "SiluBackward0": _silu,
    "GeluBackward0": _gelu,
}


def remaking() -> saved_tensors_hooks:
    """A context: what is computed in it keeps products and activations as their recipe only."""
    return saved_tensors_hooks(_pack, _unpack)


def _pack(kept: Tensor) -> Packed:
    node = kept.grad_fn
    while node is not None and node.name() in VIEWS:
        node = node.next_functions[0][0]
    recipe = REMADE.get(node.name()) if node is not None else None
    make = recipe(node) if recipe is not None else None
    return kept if make is None else (make, kept.shape)


def _unpack(packed: Packed) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    make, shape = packed
    with torch.no_grad():
        return make().view(shape)
