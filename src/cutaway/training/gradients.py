"""Which weights require gradients while a model is trained."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def gradients_enabled(params: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Within the block the parameters require gradients."""
    before = {name: parameter.requires_grad for name, parameter in params.items()}
    try:
        for parameter in params.values():
            parameter.requires_grad_(True)
        yield
    finally:
        for name, parameter in params.items():
            parameter.requires_grad_(before[name])
            parameter.grad = None


@contextmanager
def frozen_others(module: nn.Module, params: Mapping[str, Tensor]) -> Iterator[None]:
    """Within the block the module's other parameters require no gradient, which saves memory."""
    ours = {id(parameter) for parameter in params.values()}
    others = [p for p in module.parameters() if p.requires_grad and id(p) not in ours]
    try:
        for parameter in others:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
