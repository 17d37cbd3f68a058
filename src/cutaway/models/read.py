"""Hidden states by hooks: the model runs untouched, the hooks look on and are always removed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.core.errors import BadSpec, RunError
from cutaway.models.lm import LM
from cutaway.models.quiet import quiet
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

LayerCallback = Callable[[int, Tensor, Tensor | None], None]
Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]


class _StopForward(Exception):
    """Every wanted layer has been seen: the rest of the forward is not needed."""


@dataclass(frozen=True)
class ForwardStates:
    """What one forward showed: states by layer and by site, attention by block, logits."""

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
    """One forward that calls visit(layer, hidden, weights) as each wanted layer appears.

    Nothing is kept, and the forward stops after the last wanted layer. `weights` are the
    attention weights (batch, heads, seq, seq) of the block that made the layer, when asked
    for; None for layer 0, which no block made.
    """
    wanted = need_layers(lm, layers)
    if not wanted:
        return
    seen: list[int] = []

    def note(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        if layer in wanted:
            seen.append(layer)
            visit(layer, hidden, weights)
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
        f"{lm.name!r} showed layers {seen}, wanted {wanted}: its blocks at "
        f"{lm.anatomy.blocks!r} were not all called."
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
    """Everything asked for from one forward, kept in memory; all layers unless some are named."""
    wanted = need_layers(lm, range(lm.layers + 1) if layers is None else layers)
    out = ForwardStates()

    def note(layer: int, hidden: Tensor, weights: Tensor | None) -> None:
        if layer in wanted:
            out.layers[layer] = hidden.clone()
            if weights is not None:
                out.attention[layer] = weights

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
    mask: Mask | None = None,
    *,
    to: int | None = None,
) -> Float[Tensor, "batch seq d"]:
    """Layer `to` (L unless said) of a model whose layer `layer` is `hidden`.

    The blocks in front are skipped, not run.
    """
    goal = lm.layers if to is None else to
    need_layers(lm, [layer, goal])
    if goal < layer:
        raise BadSpec(f"run_from goes forward: to={goal} lies before layer {layer}.")
    if goal == layer:
        return hidden
    mask = torch.ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask
    mask = mask.to(hidden.device)
    # The ids only shape the call: what they embed to is replaced before any block sees it.
    ids = torch.full(hidden.shape[:2], lm.pad_id, device=hidden.device)
    found: list[Tensor] = []
    with _skip_blocks(lm, hidden, layer):
        visit_layers(lm, ids, mask, [goal], lambda _, state, __: found.append(state))
    return found[0]


def need_layers(lm: LM, layers: Iterable[int]) -> list[int]:
    """The layers in order; BadSpec when one is not in 0..L."""
    wanted = sorted(set(layers))
    for layer in wanted:
        if not 0 <= layer <= lm.layers:
            raise BadSpec(
                f"Layer {layer} is out of range: {lm.name!r} has layers 0..{lm.layers} "
                "(0 is the embedding output; layers are never negative)."
            )
    return wanted


def forward_kwargs(lm: LM, ids: Ids, mask: Mask) -> dict[str, Any]:
    """The keyword arguments of a forward over this batch, right for either padding side."""
    real = mask.bool()
    given: dict[str, Any] = {"input_ids": ids}
    # Without padding no mask is passed: the kernels are faster, the numbers the same.
    if not bool(real.all()):
        given["input_ids"] = ids.masked_fill(~real, lm.pad_id)
        given["attention_mask"] = real.long()
        if lm.anatomy.positions == "count":
            given["position_ids"] = (real.cumsum(dim=1) - 1).clamp(min=0)
    if lm.token_types:
        given["token_type_ids"] = make_token_type_ids(lm, given["input_ids"], real)
    if lm.kind == "causal":
        given["use_cache"] = False
    return given


def _hook_layers(stack: ExitStack, lm: LM, note: LayerCallback, *, attention: bool) -> BlockCounter:
    """Call note(layer, hidden, weights) for every layer of each forward."""
    made: dict[int, Tensor] = {}

    def entering(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        layer = count.block
        note(layer, input_state(args, kwargs), made.pop(layer, None))

    def left(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if count.block == lm.layers:
            note(lm.layers, output_state(output), made.pop(lm.layers, None))

    def weighed(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        found = [x for x in output if isinstance(x, Tensor) and x.dim() == 4]
        made.update({count.block: found[0]} if found else {})

    # Before the count goes up, so that the number of blocks entered is the number of the layer.
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
    """Keep what passes the site; a copy, since some families go on to change it in place."""
    need_site(lm, site)
    shape: list[Tensor] = []

    def entering(_: nn.Module, args: Any, kwargs: Any) -> None:
        shape[:] = [input_state(args, kwargs)]

    def keep(state: Tensor) -> None:
        if count.block == site.layer:
            kept[site] = unflatten_batch(state, shape[0]).clone()

    for block in lm.blocks:
        add_pre_hook(stack, block, entering)
        start, end = part_modules(lm, block, site.part)
        if site.side == "in":
            add_pre_hook(stack, start, lambda _, args, kwargs: keep(input_state(args, kwargs)))
        else:
            add_forward_hook(stack, end, lambda _, args, kwargs, output: keep(output_state(output)))


def _enable_attention_weights(stack: ExitStack, lm: LM) -> dict[str, Any]:
    """Switch to the kernel that shows its attention weights; restored when the stack closes."""
    if lm.anatomy.attn is None:
        raise BadSpec(f"Where {lm.name!r} keeps its attention isn't known: it shows no weights.")
    if lm.attention != "eager":
        _set_kernel(lm, "eager")
        stack.callback(_set_kernel, lm, lm.attention)
    return {"output_attentions": True} if lm.anatomy.needs_output_attentions else {}


def _set_kernel(lm: LM, kernel: str) -> None:
    """Choose the attention kernel of the coming forwards."""
    with quiet():
        lm.module.set_attn_implementation(kernel)
    # Families with attention classes of their own refuse the switch, yet ask the config.
    if lm.module.config._attn_implementation != kernel:
        lm.module.config._attn_implementation = kernel


@contextmanager
def _skip_blocks(lm: LM, hidden: Tensor, layer: int) -> Iterator[None]:
    """Every forward skips the blocks up to `layer` and goes on from `hidden`."""
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
    """How many things a block gives back: None for the bare state. Seen once, on one token."""
    if lm.module not in _OUTPUT_SIZES:
        found: list[Any] = []
        with ExitStack() as stack, torch.no_grad():
            add_forward_hook(
                stack, lm.blocks[0], lambda _, args, kwargs, output: found.append(output)
            )
            ids = torch.full((1, 1), lm.pad_id, device=lm.device)
            lm.body(**forward_kwargs(lm, ids, torch.ones_like(ids, dtype=torch.bool)))
        _OUTPUT_SIZES[lm.module] = len(found[0]) if isinstance(found[0], tuple) else None
    return _OUTPUT_SIZES[lm.module]
