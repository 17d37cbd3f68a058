"""Hidden states read by hooks, which are always removed; the model itself runs unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec, RunError
from cutaway.models.sites import (
    BlockCounter,
    Site,
    add_forward_hook,
    add_pre_hook,
    count_blocks,
    input_state,
    need_site,
    output_state,
    part_modules,
    replace_input_state,
    unflatten_batch,
)
from cutaway.models.tokens import make_token_type_ids

if TYPE_CHECKING:
    from cutaway.models.lm import LM

LayerCallback = Callable[[int, Tensor, Tensor | None], None]
Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]


class _StopForward(Exception):
    """Stops the forward pass after the last requested layer."""


@dataclass(frozen=True)
class ForwardStates:
    """The states of one forward pass by layer and by site, attention by block, logits."""

    layers: dict[int, Tensor] = field(default_factory=dict)
    sites: dict[Site, Tensor] = field(default_factory=dict)
    attention: dict[int, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None


def visit_layers(
    lm: LM,
    ids: Ids,
    mask: Mask,
    layers: Iterable[int],
    visit: LayerCallback,
    *,
    attention: bool = False,
) -> None:
    """Run one forward pass and call visit(layer, hidden, weights) for each requested layer.

    Nothing is stored, and the pass stops after the last requested layer. With `attention`,
    `weights` are the attention weights (batch, heads, seq, seq) of the block before the layer;
    None for layer 0.
    """
    wanted = need_layers(lm, layers)
    if not wanted:
        return
    seen: list[int] = []

    def note(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        if layer in wanted:
            seen.append(layer)
            visit(layer, *_gather(lm, ids, hidden, weights))
        if layer == wanted[-1]:
            raise _StopForward

    with ExitStack() as stack:
        extra = _enable_attention_weights(stack, lm) if attention else {}
        _hook_layers(stack, lm, note, attention=attention)
        try:
            lm.body(**forward_kwargs(lm, ids, mask), **extra)
        except _StopForward:
            return
    raise RunError(
        f"{lm.name!r} computed layers {seen}, expected {wanted}: not all of its blocks at "
        f"{lm.anatomy.blocks!r} were called."
    )


def collect_states(
    lm: LM,
    ids: Ids,
    mask: Mask,
    layers: Iterable[int] | None = None,
    sites: Sequence[Site] = (),
    *,
    attention: bool = False,
    logits: bool = False,
) -> ForwardStates:
    """The requested states of one forward pass, in memory; all layers by default."""
    wanted = need_layers(lm, range(lm.layers + 1) if layers is None else layers)
    out = ForwardStates()

    def note(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        if layer in wanted:
            state, heads = _gather(lm, ids, hidden, weights)
            out.layers[layer] = state.clone()
            if heads is not None:
                out.attention[layer] = heads

    with ExitStack() as stack:
        extra = _enable_attention_weights(stack, lm) if attention else {}
        count = _hook_layers(stack, lm, note, attention=attention)
        for site in sites:
            _record_site(stack, lm, site, count, out.sites)
        run = lm.module if logits else lm.body
        result = run(**forward_kwargs(lm, ids, mask), **extra)
    return out if not logits else ForwardStates(out.layers, out.sites, out.attention, result.logits)


def run_from(
    lm: LM,
    hidden: Float[Tensor, "batch seq d"],
    layer: int,
    ids: Ids,
    mask: Mask,
    *,
    to: int | None = None,
) -> Float[Tensor, "batch seq d"]:
    """Layer `to` (default L) computed from the states `hidden` of layer `layer`.

    The blocks before are skipped, not run. The blocks of some families get an embedding of the
    tokens besides the states (gemma4, zamba), so the ids are needed too.
    """
    need_resumable(lm)
    goal = lm.layers if to is None else to
    need_layers(lm, [layer, goal])
    if goal < layer:
        raise BadSpec(f"run_from goes forward: to={goal} is before layer {layer}.")
    if goal == layer:
        return hidden
    ids, mask = ids.to(hidden.device), mask.to(hidden.device)
    states: list[Tensor] = []
    with _skip_blocks(lm, hidden, layer):
        visit_layers(lm, ids, mask, [goal], lambda _, state, __: states.append(state))
    return states[0]


def need_resumable(lm: LM) -> None:
    """BadSpec unless a pass through the model can start at any layer."""
    if not lm.anatomy.resumable:
        raise BadSpec(
            f"Blocks of {lm.family!r} pass more than the states on to later ones (shared keys, "
            f"router states, padding), so {lm.name!r} can't be run from a layer on."
        )


def _gather(
    lm: LM, ids: Ids, hidden: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The states on the model's main device: blocks may be distributed over several.

    Without the positions that some families add at the end (longformer, big_bird).
    """
    state = hidden[:, : ids.shape[1]].to(lm.device)
    return state, None if weights is None else weights.to(lm.device)


def need_layers(lm: LM, layers: Iterable[int]) -> list[int]:
    """The layers in order; BadSpec if one is not in 0..L."""
    wanted = sorted(set(layers))
    for layer in wanted:
        if not 0 <= layer <= lm.layers:
            raise BadSpec(
                f"Layer {layer} is out of range: {lm.name!r} has layers 0..{lm.layers} "
                "(0 is the embedding output; layers are never negative)."
            )
    return wanted


def forward_kwargs(lm: LM, ids: Ids, mask: Mask) -> dict[str, Any]:
    """The keyword arguments of a forward pass over this batch, for either padding side."""
    real = mask.bool()
    kwargs: dict[str, Any] = {"input_ids": ids}
    # Without padding no mask is passed: the kernels are faster, the results the same.
    if not bool(real.all()):
        kwargs["input_ids"] = ids.masked_fill(~real, lm.pad_id)
        kwargs["attention_mask"] = real.long()
        if lm.anatomy.positions == "count":
            kwargs["position_ids"] = (real.cumsum(dim=1) - 1).clamp(min=0)
    if lm.token_types:
        kwargs["token_type_ids"] = make_token_type_ids(lm, kwargs["input_ids"], real)
    if lm.kind == "causal":
        kwargs["use_cache"] = False
    return kwargs


def _hook_layers(stack: ExitStack, lm: LM, note: LayerCallback, *, attention: bool) -> BlockCounter:
    """Call note(layer, hidden, weights) for every layer of each forward pass."""
    attention_of: dict[int, Tensor] = {}

    def entering(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        layer = count.block
        note(layer, input_state(args, kwargs), attention_of.pop(layer, None))

    def left(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if count.block == lm.layers:
            note(lm.layers, output_state(output), attention_of.pop(lm.layers, None))

    def weighed(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        weights = [x for x in output if isinstance(x, Tensor) and x.dim() == 4]
        attention_of.update({count.block: weights[0]} if weights else {})

    # Added before the counter, so that the number of blocks entered is the number of the layer.
    for block in lm.blocks:
        add_pre_hook(stack, block, entering)
    count = count_blocks(stack, lm)
    for block in lm.blocks:
        add_forward_hook(stack, block, left)
        if attention:
            add_forward_hook(stack, part_modules(lm, block, "attn")[0], weighed)
    return count


def _record_site(
    stack: ExitStack, lm: LM, site: Site, count: BlockCounter, kept: dict[Site, Tensor]
) -> None:
    """Store a copy of the states at the site: some families change them in place afterwards."""
    need_site(lm, site)
    shape: list[Tensor] = []

    def entering(_: nn.Module, args: Any, kwargs: Any) -> None:
        shape[:] = [input_state(args, kwargs)]

    def keep(state: Tensor) -> None:
        if count.block == site.layer:
            kept[site] = unflatten_batch(state, shape[0]).to(lm.device).clone()

    for block in lm.blocks:
        add_pre_hook(stack, block, entering)
        start, end = part_modules(lm, block, site.part)
        if site.side == "in":
            add_pre_hook(stack, start, lambda _, args, kwargs: keep(input_state(args, kwargs)))
        else:
            add_forward_hook(stack, end, lambda _, args, kwargs, output: keep(output_state(output)))


def _enable_attention_weights(stack: ExitStack, lm: LM) -> dict[str, Any]:
    """Use the kernel that returns attention weights until the stack closes."""
    if lm.anatomy.attn is None:
        raise BadSpec(f"{lm.name!r} has no known attention module, so it returns no weights.")
    if lm.attention != "eager":
        _set_kernel(lm, "eager")
        stack.callback(_set_kernel, lm, lm.attention)
    return {"output_attentions": True} if lm.anatomy.needs_output_attentions else {}


def _set_kernel(lm: LM, kernel: str) -> None:
    """Choose the attention kernel of the next forward passes."""
    with quiet_transformers():
        lm.module.set_attn_implementation(kernel)
    # Families with their own attention classes ignore the call but read the config.
    if lm.module.config._attn_implementation != kernel:
        lm.module.config._attn_implementation = kernel


@contextmanager
def _skip_blocks(lm: LM, hidden: Tensor, layer: int) -> Iterator[None]:
    """Within the block every forward pass skips the blocks up to `layer` and uses `hidden`."""
    size = _block_output_size(lm)
    with ExitStack() as stack:
        count = count_blocks(stack, lm)
        for block in lm.blocks:
            own = block.__dict__.get("forward")
            block.forward = _resume_from(block.forward, hidden, layer, count, size)
            stack.callback(_restore_forward, block, own)
        yield


def _resume_from(
    forward: Callable[..., Any], hidden: Tensor, layer: int, count: BlockCounter, size: int | None
) -> Callable[..., Any]:
    def jump(*args: Any, **kwargs: Any) -> Any:
        if count.block <= layer:
            state = input_state(args, kwargs)
            return state if size is None else (state, *[None] * (size - 1))
        if count.block == layer + 1:
            args, kwargs = replace_input_state(args, kwargs, hidden)
        return forward(*args, **kwargs)

    return jump


def _restore_forward(block: nn.Module, own: Any) -> None:
    del block.forward
    if own is not None:
        block.forward = own


_OUTPUT_SIZES: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()


def _block_output_size(lm: LM) -> int | None:
    """The length of the tuple that a block returns; None if it returns only the state."""
    if lm.module not in _OUTPUT_SIZES:
        outputs: list[Any] = []
        with ExitStack() as stack, torch.no_grad():
            add_forward_hook(
                stack, lm.blocks[0], lambda _, args, kwargs, output: outputs.append(output)
            )
            ids = torch.full((1, 1), lm.pad_id, device=lm.device)
            lm.body(**forward_kwargs(lm, ids, torch.ones_like(ids, dtype=torch.bool)))
        several = isinstance(outputs[0], tuple | list)
        _OUTPUT_SIZES[lm.module] = len(outputs[0]) if several else None
    return _OUTPUT_SIZES[lm.module]
