"""Named positions inside the blocks, and helpers for hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.models.block_layout import BLOCK_PARTS, BlockPart

if TYPE_CHECKING:
    from cutaway.models.lm import LM

PartSide = Literal["in", "out"]
Hook = Callable[..., Any]


@dataclass(frozen=True)
class Site:
    """A position in block `layer` (1..L): the input or output of a part. `Site(l, "block")` is
    layer l."""

    layer: int
    part: BlockPart = "block"
    side: PartSide = "out"


@dataclass
class BlockCounter:
    """The number of blocks that the current forward pass has entered."""

    block: int = 0


def need_site(lm: LM, site: Site) -> None:
    """BadSpec unless the model has this site."""
    if site.part not in BLOCK_PARTS or site.side not in ("in", "out"):
        raise BadSpec(
            f"{site!r} is not a site: part is one of {BLOCK_PARTS}, side is 'in' or 'out'."
        )
    if not 1 <= site.layer <= lm.layers:
        raise BadSpec(f"Block {site.layer} is out of range: {lm.name!r} has blocks 1..{lm.layers}.")
    if site.part != "block" and getattr(lm.anatomy, site.part) is None:
        raise BadSpec(f"Blocks of {lm.family!r} have no separate part {site.part!r}.")


def part_modules(lm: LM, block: nn.Module, part: BlockPart) -> tuple[nn.Module, nn.Module]:
    """The first and the last module of a part."""
    if part == "block":
        return block, block
    name = getattr(lm.anatomy, part)
    start, _, end = name.partition(":")
    return block.get_submodule(start), block.get_submodule(end or start)


def input_state(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """The hidden states that a module is called with."""
    if args and isinstance(args[0], Tensor):
        return args[0]
    state: Tensor = kwargs["hidden_states"]
    return state


def replace_input_state(
    args: tuple[Any, ...], kwargs: dict[str, Any], state: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call with other hidden states."""
    if args and isinstance(args[0], Tensor):
        return (state, *args[1:]), kwargs
    return args, kwargs | {"hidden_states": state}


def output_state(output: Any) -> Tensor:
    """The hidden states that a module returns, alone or first in a tuple or list."""
    state: Tensor = output[0] if isinstance(output, tuple | list) else output
    return state


def replace_output_state(output: Any, state: Tensor) -> Any:
    """The same output with other hidden states."""
    return (state, *output[1:]) if isinstance(output, tuple | list) else state


def add_pre_hook(stack: ExitStack, module: nn.Module, hook: Hook) -> None:
    """Call hook(module, args, kwargs) before the module runs."""
    stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)


def add_forward_hook(stack: ExitStack, module: nn.Module, hook: Hook) -> None:
    """Call hook(module, args, kwargs, output) after the module ran."""
    stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)


def count_blocks(stack: ExitStack, lm: LM) -> BlockCounter:
    """A counter that follows every forward pass until the stack closes.

    Blocks are counted by their calls, because some families call one block several times.
    """
    count = BlockCounter()

    def restart(*_: Any) -> None:
        count.block = 0

    def enter(*_: Any) -> None:
        count.block += 1

    add_pre_hook(stack, lm.body, restart)
    for block in lm.blocks:
        add_pre_hook(stack, block, enter)
    return count


def unflatten_batch(state: Tensor, like: Tensor) -> Tensor:
    """The state as (batch, seq, d); the mlp of opt gets flattened rows."""
    return state if state.dim() == like.dim() else state.reshape(*like.shape[:-1], -1)
