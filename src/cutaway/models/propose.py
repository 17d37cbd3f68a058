"""Anatomies for a family without a row: proposed from its modules, verified by the checks."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Any, Literal

import torch
from torch import nn

from cutaway.core.errors import BadModel
from cutaway.models import consistency
from cutaway.models.anatomy import Anatomy, BlockLayout, ModelKind
from cutaway.models.consistency import ConsistencyCheck
from cutaway.models.lm import LM

HOWTO = "Write a row for it: docs/howto/add-a-model-family.md"
# Config fields by which families change their logits.
LOGIT_FIELDS = {
    "final_logit_softcapping": "softcap",
    "logit_scale": "multiply",
    "logits_scaling": "divide",
}


def propose_anatomies(module: Any, kind: ModelKind) -> list[Anatomy]:
    """Candidate anatomies, most likely first; `choose_anatomy` names the parts of the blocks."""
    blocks = _blocks(module)
    decoder = _name_of(module, module.get_output_embeddings())
    embeddings = _name_of(module, module.get_input_embeddings())
    if decoder is None or embeddings is None:
        raise BadModel(f"{type(module).__name__} has no input or output embedding. {HOWTO}")
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
        logit_operations=tuple(
            (op, name) for name, op in LOGIT_FIELDS.items() if getattr(module.config, name, None)
        ),
        fused_qkv=_fused_qkv(module),
        proposed=True,
    )
    choices = product(_final_norm_candidates(module, blocks), _position_candidates(module))
    return [replace(plain, final=final, positions=counted) for final, counted in choices]


def choose_anatomy(lm: LM, candidates: Iterable[Anatomy]) -> LM:
    """The model with the first candidate that passes the checks, else with the one that fails the
    fewest, which the check of the model then reports."""
    tried: list[tuple[int, LM]] = []
    for candidate in candidates:
        guess = replace(lm, anatomy=candidate)
        failed = sum(not one.passed for one in _distinguishing_checks(guess))
        if failed == 0:
            return _with_parts(_with_attention(guess))
        tried.append((failed, guess))
    return min(tried, key=lambda pair: pair[0])[1]


def _distinguishing_checks(lm: LM) -> list[ConsistencyCheck]:
    """The checks that distinguish candidates; one that raises an error counts as failed."""
    try:
        with torch.no_grad():
            sample = consistency.check_sample(lm)
            checks = consistency.applicable_checks(lm, thorough=False)
            return [measure(lm, sample) for measure in checks]
    except (RuntimeError, TypeError, KeyError, IndexError, AttributeError) as error:
        return [ConsistencyCheck("runs", float("inf"), 0.0, "wrong", str(error))] * 4


def _with_attention(lm: LM) -> LM:
    """The model; without a name for its attention if that returns no weights."""
    if lm.anatomy.attn is None:
        return lm
    with torch.no_grad():
        sample = consistency.check_sample(lm, consistency.SENTENCES[:2])
        passed = consistency.check_attention_sums(lm, sample).passed
    return lm if passed else replace(lm, anatomy=replace(lm.anatomy, attn=None))


def _with_parts(lm: LM) -> LM:
    """The model with the parts of its blocks named, if some naming adds up to the block."""
    if lm.anatomy.attn is None:
        return lm
    with torch.no_grad():
        sample = consistency.check_sample(lm, consistency.SENTENCES[:1])
        for anatomy in _part_candidates(lm):
            guess = replace(lm, anatomy=anatomy)
            try:
                own = replace(sample, noise={})
                if consistency.check_block_parts(guess, own).passed:
                    return guess
            except (KeyError, AttributeError, RuntimeError):
                continue
    return lm


def _part_candidates(lm: LM) -> Iterator[Anatomy]:
    """Norms and mlp among the block's children, in every order and layout."""
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
    """The module list with the most weights and one module per layer of the config."""
    layers = getattr(module.config, "num_hidden_layers", None)
    lists = {n: m for n, m in module.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    fit = {name: _parameter_count(one) for name, one in lists.items() if len(one) == layers}
    if not fit:
        raise BadModel(f"{type(module).__name__} has no list of {layers} blocks. {HOWTO}")
    best: str = max(fit, key=lambda name: (fit[name], -name.count(".")))
    return best


def _final_norm_candidates(module: Any, blocks: str) -> list[tuple[str, ...]]:
    """The norms next to the blocks, the last first, and no norm."""
    parent, _, _ = blocks.rpartition(".")
    beside = module.get_submodule(parent).named_children()
    norms = [name for name, child in beside if _is_norm(name, child)]
    return [(f"{parent}.{name}",) for name in reversed(norms)] + [()]


def _head(module: Any, decoder: str) -> tuple[str, ...]:
    """The modules next to the body, up to the one that contains the decoder."""
    tops = [name for name, child in module.named_children() if child is not module.base_model]
    holder = decoder.split(".")[0]
    if holder not in tops:
        return (decoder,)
    return tuple(tops[: tops.index(holder) + 1])


def _fused_qkv(module: Any) -> Literal["concatenated", "interleaved"]:
    """Families that call the matrix query_key_value order it head by head."""
    names = [name for name, _ in module.named_modules()]
    return "interleaved" if any(n.endswith("query_key_value") for n in names) else "concatenated"


def _position_candidates(module: Any) -> list[Any]:
    """Whether position ids are passed in padded batches, in the order to try."""
    takes = inspect.signature(module.base_model.forward).parameters
    return ["count", "own"] if "position_ids" in takes else ["own"]


def _child(block: nn.Module, words: tuple[str, ...]) -> str | None:
    """The first child of a block with weights and one of the words in its name."""
    children = [n for n, m in block.named_children() if _parameter_count(m) and not _is_norm(n, m)]
    return next((n for n in children if any(word in n.lower() for word in words)), None)


def _is_norm(name: str, child: nn.Module) -> bool:
    return "norm" in f"{name} {type(child).__name__}".lower() or name.lower().startswith("ln")


def _name_of(root: Any, wanted: nn.Module | None) -> str | None:
    named: Iterable[tuple[str, nn.Module]] = root.named_modules()
    return next((name for name, one in named if one is wanted), None)


def _parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
