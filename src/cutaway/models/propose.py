"""An anatomy for a family without a row: proposed from its modules, verified by the checks.

What the names of the modules don't say is tried out: one field after the other, the first value
with which its checks pass. A wrong choice can't pass unnoticed, because a proposed anatomy has to
pass every check before the model is used.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import permutations, product
from typing import Any, Literal

import torch
from torch import nn

from cutaway.core.errors import BadModel
from cutaway.models import consistency
from cutaway.models.anatomy import Anatomy, ModelKind
from cutaway.models.block_layout import BlockLayout
from cutaway.models.find_blocks import HOWTO, find_blocks, need_readable_blocks
from cutaway.models.lm import LM, model_body
from cutaway.models.rounding import wider_precision

Changes = dict[str, Any]
LOGIT_FIELDS: dict[str, tuple[str, ...]] = {
    "lm_head_multiplier": ("multiply",),
    "logit_scale": ("multiply",),
    "logits_mup_width_multiplier": ("divide",),
    "logits_scaling": ("divide", "multiply"),
    "output_multiplier": ("multiply",),
    "final_logit_softcapping": ("softcap",),
    "logits_soft_cap": ("softcap",),
    "output_logit_soft_cap": ("softcap",),
}
"""Config fields by which families change their logits, and what they may mean."""
HINTS: dict[str, Changes] = {
    "mobilebert": {
        "decoder_rest": "cls.predictions.dense",
        "features": "cls.predictions.transform",
    },
}
"""What inspection can't find in single families."""
FAILURES = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What a pass with a wrong anatomy may raise."""


def propose_anatomy(module: Any, kind: ModelKind) -> Anatomy:
    """A first proposal from the names of the modules; `choose_anatomy` completes it."""
    blocks = find_blocks(module)
    body = model_body(module, blocks)
    decoder = _name_of(module, module.get_output_embeddings())
    embeddings = _name_of(module, module.get_input_embeddings())
    if decoder is None or embeddings is None:
        raise BadModel(f"{type(module).__name__} has no input or output embedding. {HOWTO}")
    plain = Anatomy(
        kind=kind,
        embeddings=embeddings,
        blocks=blocks,
        norm1=None,
        attn=_child(module.get_submodule(blocks), ("attn", "attention")),
        norm2=None,
        mlp=None,
        final=(),
        head=_head(module, body, decoder),
        decoder=decoder,
        decoder_bias=_decoder_bias(module, decoder),
        positions="count" if _takes_positions(body) else "own",
        fused_qkv=_fused_qkv(module),
        proposed=True,
    )
    return replace(plain, **HINTS.get(module.config.model_type, {}))


def choose_anatomy(lm: LM) -> LM:
    """The model with its proposed anatomy completed by what passes the checks.

    What no value passes is left as it is; the check of the model then reports it. The rounding
    noise of 16 bits can hide a wrong value, so weights are widened meanwhile if possible.
    """
    with torch.no_grad():
        need_readable_blocks(lm)
    narrow = lm.dtype in ("bfloat16", "float16")
    with torch.no_grad(), wider_precision(lm) if narrow else nullcontext():
        for options, checks in STAGES:
            lm = _first_passing(lm, options(lm), checks)
    return lm


def _first_passing(lm: LM, options: Iterator[Changes], checks: tuple[consistency.Check, ...]) -> LM:
    """The model with the first change with which the checks pass, else with the one that fails the
    fewest; unchanged if there is nothing to try."""
    tried: list[tuple[int, LM]] = []
    for change in options:
        guess = replace(lm, anatomy=replace(lm.anatomy, **change))
        failed = _count_failed(guess, checks)
        if failed == 0:
            return guess
        tried.append((failed, guess))
    return min(tried, key=lambda pair: pair[0])[1] if tried else lm


def _count_failed(lm: LM, checks: tuple[consistency.Check, ...]) -> int:
    """How many of the checks are above the noise; all of them if a pass ends in an error."""
    wanted = [one for one in checks if one in consistency.applicable_checks(lm)]
    try:
        sample = consistency.check_sample(lm)
        return sum(one(lm, sample).verdict != "fine" for one in wanted)
    except FAILURES:
        return len(checks)


def _final_norms(lm: LM) -> Iterator[Changes]:
    """The norms next to the blocks or above them, the last first, or none; both conventions for
    plain hidden states, and position ids passed or not."""
    parent, norms = lm.anatomy.blocks, []
    while "." in parent:
        parent = parent.rpartition(".")[0]
        children = list(lm.module.get_submodule(parent).named_children())
        norms += [f"{parent}.{n}" for n, child in reversed(children) if _is_norm(n, child)]
    positions = ("count", "own") if lm.anatomy.positions == "count" else ("own",)
    finals: list[tuple[str, ...]] = [*((name,) for name in norms), ()]
    for counted, first, final in product(positions, (0, 1), finals):
        yield {"final": final, "first_hidden_state": first, "positions": counted}


def _logit_operations(lm: LM) -> Iterator[Changes]:
    """Every meaning of the fields that this config has."""
    config = lm.module.config.get_text_config()
    there = {name: ops for name, ops in LOGIT_FIELDS.items() if getattr(config, name, None)}
    for operations in product(*there.values()):
        yield {"logit_operations": tuple(zip(operations, there, strict=True))}
    yield {"logit_operations": ()}


def _paddings(lm: LM) -> Iterator[Changes]:
    """Position ids that count the real tokens, or the family's own; padding on both sides, or on
    the right only."""
    positions = ("count", "own") if lm.anatomy.positions == "count" else ("own",)
    for padding, counted in product(("either", "right"), positions):
        yield {"padding": padding, "positions": counted}


def _resuming(lm: LM) -> Iterator[Changes]:
    yield from ({"resumable": True}, {"resumable": False})


def _attention(lm: LM) -> Iterator[Changes]:
    """Attention that returns weights, perhaps only when asked to, or none."""
    if lm.anatomy.attn is not None:
        yield from ({}, {"needs_output_attentions": True})
    yield {"attn": None}


def _parts(lm: LM) -> Iterator[Changes]:
    """Norms and mlp among the block's children, in every order and layout, or no names."""
    blocks = lm.module.get_submodule(lm.anatomy.blocks)
    mlp = _child(blocks, ("mlp", "ffn", "feed_forward", "moe", "feedforward"))
    norms = [name for name, child in blocks[0].named_children() if _is_norm(name, child)]
    if lm.anatomy.attn is None or mlp is None or not 1 <= len(norms) <= 2:
        return
    layouts: tuple[BlockLayout, ...] = ("pre", "parallel", "post", "inner")
    orders = permutations(norms) if len(norms) == 2 else [(norms[0], None)]
    for (one, two), layout in product(orders, layouts):
        if two is not None or layout == "parallel":
            yield {"norm1": one, "norm2": two, "mlp": mlp, "layout": layout}
    yield {}


STAGES: tuple[tuple[Callable[[LM], Iterator[Changes]], tuple[consistency.Check, ...]], ...] = (
    (_final_norms, (consistency.check_hidden_states,)),
    (_logit_operations, (consistency.check_logits,)),
    (_paddings, (consistency.check_left_padding, consistency.check_right_padding)),
    (_resuming, (consistency.check_run_from,)),
    (_attention, (consistency.check_attention_sums,)),
    (_parts, (consistency.check_block_parts,)),
)
"""What is tried, in this order, and the checks that decide."""


def _head(module: Any, body: nn.Module, decoder: str) -> tuple[str, ...]:
    """The modules next to the body, up to the one that contains the decoder."""
    tops = [name for name, child in module.named_children() if child is not body]
    holder = decoder.split(".")[0]
    if holder not in tops:
        return (decoder,)
    return tuple(tops[: tops.index(holder) + 1])


def _decoder_bias(module: Any, decoder: str) -> str | None:
    """A bias next to a decoder without one: `decoder(x) + bias`."""
    holder, _, _ = decoder.rpartition(".")
    own = getattr(module.get_submodule(decoder), "bias", None)
    beside = dict(module.get_submodule(holder).named_parameters(recurse=False)) if holder else {}
    return f"{holder}.bias" if own is None and "bias" in beside else None


def _fused_qkv(module: Any) -> Literal["concatenated", "interleaved"]:
    """Families that call the matrix query_key_value order it head by head."""
    names = [name for name, _ in module.named_modules()]
    return "interleaved" if any(n.endswith("query_key_value") for n in names) else "concatenated"


def _takes_positions(body: nn.Module) -> bool:
    return "position_ids" in inspect.signature(body.forward).parameters


def _child(blocks: Any, words: tuple[str, ...]) -> str | None:
    """The first child with weights and one of the words in its name that every block has."""
    first, *others = (dict(block.named_children()) for block in blocks)
    names = [n for n, m in first.items() if list(m.parameters()) and not _is_norm(n, m)]
    shared = [name for name in names if all(name in other for other in others)]
    return next((n for n in shared if any(word in n.lower() for word in words)), None)


def _is_norm(name: str, child: nn.Module) -> bool:
    return "norm" in f"{name} {type(child).__name__}".lower() or name.lower().startswith("ln")


def _name_of(root: Any, wanted: nn.Module | None) -> str | None:
    return next((name for name, one in root.named_modules() if one is wanted), None)
