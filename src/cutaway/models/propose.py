"""Anatomies for a family without a row: guessed from its modules, kept only if the laws hold."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import torch
from torch import nn

from cutaway.core.errors import BadModel
from cutaway.models import laws
from cutaway.models.anatomy import Anatomy, BlockLayout, ModelKind
from cutaway.models.laws import ConsistencyCheck
from cutaway.models.lm import LM

HOWTO = "Write a row for it: docs/howto/add-a-model-family.md"
SIDES: tuple[laws.PaddingSide, ...] = ("left", "right")
# Config fields that families use for what they do to their logits.
LOGIT_FIELDS = {
    "final_logit_softcapping": "softcap",
    "logit_scale": "multiply",
    "logits_scaling": "divide",
}


def propose_anatomies(module: Any, kind: ModelKind) -> list[Anatomy]:
    """What the family may look like, likeliest first; parts of blocks are left to `settle`."""
    blocks = _blocks(module)
    decoder = _name_of(module, module.get_output_embeddings())
    embeddings = _name_of(module, module.get_input_embeddings())
    if decoder is None or embeddings is None:
        raise BadModel(f"{type(module).__name__} shows no input or output embedding. {HOWTO}")
    plain = Anatomy(
        kind=kind,
        embeddings=embeddings,
        blocks=blocks,
        norm1=None,
        attn=_child(module.get_submodule(blocks)[0], ("attn", "attention")),
        norm2=None,
        mlp=None,
        final=(),
        head=_head(module, decoder),
        decoder=decoder,
        logit_operations=_logit_operations(module.config),
        proposed=True,
    )
    choices = product(_final_norm_candidates(module, blocks), _position_candidates(module))
    return [replace(plain, final=final, positions=counted) for final, counted in choices]


def choose_anatomy(lm: LM, candidates: Iterable[Anatomy]) -> LM:
    """The model with the first candidate that holds the laws, else with the one that breaks
    fewest: the check then says which."""
    tried: list[tuple[int, LM]] = []
    for candidate in candidates:
        guess = replace(lm, anatomy=candidate)
        broken = sum(not law.passed for law in _distinguishing_checks(guess))
        if broken == 0:
            return _with_parts(_with_attention(guess))
        tried.append((broken, guess))
    return min(tried, key=lambda pair: pair[0])[1]


def _distinguishing_checks(lm: LM) -> list[ConsistencyCheck]:
    """The laws that tell candidates apart; one that can't even run counts as broken."""
    try:
        with torch.no_grad():
            drawn = laws.check_sample(lm)
            found = [laws.check_hidden_states(lm, drawn)]
            found += [laws.check_logits(lm, drawn)] if lm.has_head else []
            return [*found, *(laws.check_padding(lm, drawn, s) for s in SIDES)]
    except (RuntimeError, TypeError, KeyError, IndexError, AttributeError) as error:
        return [ConsistencyCheck("runs", False, float("inf"), 0.0, str(error))] * 4


def _with_attention(lm: LM) -> LM:
    """The model; without a name for its attention when that shows no weights."""
    if lm.anatomy.attn is None:
        return lm
    with torch.no_grad():
        shown = laws.check_attention_sums(lm, laws.check_sample(lm, laws.SENTENCES[:2])).passed
    return lm if shown else replace(lm, anatomy=replace(lm.anatomy, attn=None))


def _with_parts(lm: LM) -> LM:
    """The model with the parts of its blocks named, where a naming adds up to the block."""
    if lm.anatomy.attn is None:
        return lm
    with torch.no_grad():
        drawn = laws.check_sample(lm, laws.SENTENCES[:1])
        for anatomy in _part_candidates(lm):
            guess = replace(lm, anatomy=anatomy)
            try:
                if laws.check_block_parts(guess, drawn).passed:
                    return guess
            except (KeyError, AttributeError, RuntimeError):
                continue
    return lm


def _part_candidates(lm: LM) -> Iterator[Anatomy]:
    """Namings of norms and mlp by the blocks' children, in every order and layout."""
    block = lm.blocks[0]
    mlp = _child(block, ("mlp", "ffn", "feed_forward", "moe", "feedforward"))
    norms = [name for name, child in block.named_children() if _is_norm(name, child)]
    if mlp is None or not 1 <= len(norms) <= 2:
        return
    layouts: tuple[BlockLayout, ...] = ("pre", "parallel", "post", "inner")
    orders = permutations(norms) if len(norms) == 2 else [(norms[0], None)]
    for (one, two), layout in product(orders, layouts):
        if two is not None or layout == "parallel":
            yield replace(lm.anatomy, norm1=one, norm2=two, mlp=mlp, layout=layout)


def _blocks(module: Any) -> str:
    """The list of modules with most weights, one per layer of the config."""
    layers = getattr(module.config, "num_hidden_layers", None)
    lists = {n: m for n, m in module.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    fit = {name: _parameter_count(found) for name, found in lists.items() if len(found) == layers}
    if not fit:
        raise BadModel(f"{type(module).__name__} has no list of {layers} blocks. {HOWTO}")
    best: str = max(fit, key=lambda name: (fit[name], -name.count(".")))
    return best


def _final_norm_candidates(module: Any, blocks: str) -> list[tuple[str, ...]]:
    """The norms beside the blocks, last first, and none at all."""
    parent, _, _ = blocks.rpartition(".")
    beside = module.get_submodule(parent).named_children()
    norms = [name for name, child in beside if _is_norm(name, child)]
    return [(f"{parent}.{name}",) for name in reversed(norms)] + [()]


def _head(module: Any, decoder: str) -> tuple[str, ...]:
    """What stands beside the body, up to and with what holds the decoder."""
    tops = [name for name, child in module.named_children() if child is not module.base_model]
    holder = decoder.split(".")[0]
    if holder not in tops:
        return (decoder,)
    return tuple(tops[: tops.index(holder) + 1])


def _logit_operations(config: Any) -> tuple[tuple[str, str], ...]:
    return tuple((op, name) for name, op in LOGIT_FIELDS.items() if getattr(config, name, None))


def _position_candidates(module: Any) -> list[Any]:
    """Who counts positions in padded batches: to be tried in this order."""
    takes = inspect.signature(module.base_model.forward).parameters
    return ["count", "own"] if "position_ids" in takes else ["own"]


def _child(block: nn.Module, words: tuple[str, ...]) -> str | None:
    """The first child of a block with weights and one of the words in its name."""
    found = [n for n, m in block.named_children() if _parameter_count(m) and not _is_norm(n, m)]
    return next((n for n in found if any(word in n.lower() for word in words)), None)


def _is_norm(name: str, child: nn.Module) -> bool:
    return "norm" in f"{name} {type(child).__name__}".lower() or name.lower().startswith("ln")


def _name_of(root: Any, wanted: nn.Module | None) -> str | None:
    named: Iterable[tuple[str, nn.Module]] = root.named_modules()
    return next((name for name, found in named if found is wanted), None)


def _parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
