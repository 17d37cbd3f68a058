"""Run a model with other weights or with replaced parts; always restored afterwards."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from cutaway.core.errors import Mismatch
from cutaway.core.lookup import suggestion
from cutaway.models.lm import LM
from cutaway.models.sites import (
    Site,
    add_forward_hook,
    add_pre_hook,
    count_blocks,
    input_state,
    need_site,
    output_state,
    part_modules,
    replace_output_state,
    unflatten_batch,
)

Params = Mapping[str, Tensor]
Replacement = Callable[[Tensor], Tensor]


class _FunctionModule(nn.Module):
    """Lets `functional_call` run any function of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[Any], Any]) -> Any:
        return function(self.module)


def with_params(module: nn.Module, params: Params | None, function: Callable[[Any], Any]) -> Any:
    """function(module) with these weights, differentiable in them.

    Weights that aren't given are the module's own; None means all are.
    """
    if params is None:
        return function(module)
    _need_matching_params(dict(module.named_parameters(remove_duplicate=False)), params)
    named = {f"module.{name}": value for name, value in params.items()}
    return functional_call(_FunctionModule(module), named, (function,))


@contextmanager
def swapped_parts(lm: LM, functions: Mapping[Site, Replacement]) -> Iterator[None]:
    """Within the block each site's part is replaced by a function of the part's input.

    The side of a site doesn't matter: the function gets the part's input (batch, seq, d) and
    returns its output.
    """
    for site in functions:
        need_site(lm, site)
    with ExitStack() as stack:
        count = count_blocks(stack, lm)
        shape: dict[str, Tensor] = {}

        def entering(_: nn.Module, args: Any, kwargs: Any) -> None:
            shape["block"] = input_state(args, kwargs)

        for block in lm.blocks:
            add_pre_hook(stack, block, entering)
        for site, function in functions.items():
            for block in lm.blocks:
                _replace_part(stack, lm, block, site, function, shape, lambda: count.block)
        yield


def _replace_part(
    stack: ExitStack,
    lm: LM,
    block: nn.Module,
    site: Site,
    function: Replacement,
    shape: Mapping[str, Tensor],
    inside: Callable[[], int],
) -> None:
    """Record the part's input, and replace its output by the function of it."""
    start, end = part_modules(lm, block, site.part)
    inputs: list[Tensor] = []

    def record(_: nn.Module, args: Any, kwargs: Any) -> None:
        if inside() == site.layer:
            # A copy, because some families change it in place.
            inputs[:] = [unflatten_batch(input_state(args, kwargs), shape["block"]).clone()]

    def replace_output(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if inside() != site.layer:
            return None
        old = output_state(output)
        return replace_output_state(output, function(inputs[0]).reshape(old.shape).to(old))

    add_pre_hook(stack, start, record)
    add_forward_hook(stack, end, replace_output)


def _need_matching_params(own: Mapping[str, Tensor], params: Params) -> None:
    """Mismatch unless the model has every given weight in the same shape."""
    for name, value in params.items():
        if name not in own:
            raise Mismatch(f"The model has no weight {name!r}. {suggestion(name, own)}".rstrip())
        if value.shape != own[name].shape:
            raise Mismatch(
                f"Weight {name!r} has shape {tuple(value.shape)}, the model's has "
                f"{tuple(own[name].shape)}: these are not the same architecture."
            )
