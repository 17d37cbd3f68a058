"""The blocks of a model without a row, and whether hidden states can be read at them."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadModel
from cutaway.models.hooks import forward_kwargs
from cutaway.models.lm import LM
from cutaway.models.plausible_config import reason_of
from cutaway.models.sites import add_pre_hook

HOWTO = "Write a row for it: docs/howto/add-a-model-family.md"
LAYER_FIELDS = ("num_hidden_layers", "decoder_layers", "num_layers")
"""Config fields with the number of blocks; decoders of encoder-decoders have their own."""
TEXTS, TOKENS = 2, 7
UNREADABLE = {
    "cpmant": "learned prompt tokens are put before every text",
    "flaubert": "attention, mlp and norms are separate lists, and no module is a block",
    "prophetnet": "its blocks work on several streams of tokens at once",
    "reformer": "its layers are reversible, with two residual streams",
    "squeezebert": "its blocks are not called as modules",
    "xlm": "attention, mlp and norms are separate lists, and no module is a block",
}
"""Families whose code was looked into: why their blocks have no hidden states to read."""


def find_blocks(module: Any) -> str:
    """The module list with one module per layer of the config and the most weights.

    Without one of that length, the longest list of modules of one kind.
    """
    config = module.config.get_text_config(decoder=True)
    layers = {getattr(config, name, None) for name in LAYER_FIELDS}
    lists = {
        name: one
        for name, one in _own_modules(module)
        if isinstance(one, nn.ModuleList) and len(one)
    }
    fit = {name: one for name, one in lists.items() if len(one) in layers}
    fit = fit or {name: one for name, one in lists.items() if len({type(b) for b in one}) == 1}
    if not fit:
        raise BadModel(
            f"{type(module).__name__} has no list of blocks, so it has no layers to read. {HOWTO}"
        )
    return max(fit, key=lambda name: (_parameter_count(fit[name]), -name.count(".")))


def need_readable_blocks(lm: LM) -> None:
    """BadModel with the reason unless every block gets states of the shape (texts, tokens, d)."""
    reason = UNREADABLE.get(lm.family) or _unreadable(lm, _input_shapes(lm))
    if reason:
        raise BadModel(
            f"Hidden states of {lm.name!r} can't be read block by block: {reason}. Family "
            f"{lm.family!r} isn't supported."
        )


def _input_shapes(lm: LM) -> list[tuple[int, ...]]:
    """The shapes of what the blocks are called with, in one pass over a few tokens."""
    shapes: list[tuple[int, ...]] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = [x for x in (*args, kwargs.get("hidden_states")) if isinstance(x, Tensor)]
        shapes.append(tuple(states[0].shape) if states else ())

    ids = torch.full((TEXTS, TOKENS), lm.pad_id, device=lm.device)
    ids += torch.arange(TOKENS, device=lm.device) + 1
    ids %= lm.module.get_submodule(lm.anatomy.embeddings).weight.shape[0]
    mask = torch.ones_like(ids, dtype=torch.bool)
    with ExitStack() as stack:
        for block in lm.blocks:
            add_pre_hook(stack, block, note)
        try:
            lm.body(**forward_kwargs(lm, ids, mask))
        except Exception as error:  # whatever a family's code raises
            raise BadModel(
                f"{lm.name!r} ({lm.family}) doesn't run in transformers on a row of token ids "
                f"alone, in {lm.dtype}: {reason_of(error)}"
            ) from None
    return shapes


def _unreadable(lm: LM, shapes: list[tuple[int, ...]]) -> str:
    """Why the inputs of the blocks at anatomy.blocks are no hidden states; "" if they are."""
    where = lm.anatomy.blocks
    if len(shapes) != lm.layers:
        return (
            f"the {lm.layers} modules at {where!r} were called {len(shapes)} times in one pass, so "
            "they are not its blocks"
        )
    for shape in shapes:
        if len(shape) != 3 or shape[0] != TEXTS or shape[1] < TOKENS or shape[2] != lm.width:
            return (
                f"{TEXTS} texts of {TOKENS} tokens are states of shape {shape} at {where!r}, not "
                f"({TEXTS}, {TOKENS}, {lm.width})"
            )
    return ""


def _own_modules(module: Any) -> Iterator[tuple[str, nn.Module]]:
    """The modules of the language model: those for images and sound are left out."""
    other = ("vision", "visual", "audio", "image", "vqmodel")
    for name, one in module.named_modules():
        if not any(word in name.lower() for word in other):
            yield name, one


def _parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
