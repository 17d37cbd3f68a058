"""Models of transformers that are in memory already, opened with their tokenizer as they are.

The caller's objects are not changed: Cutaway works on a second module over the same weights, in
evaluation mode and without gradients, and on a copy of the tokenizer. The digest is made from the
weights as they are now and the config, and changes when the weights do (`LM.refresh_digest`).
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, BadSpec
from cutaway.models.anatomy import ModelKind
from cutaway.models.assemble import assemble_lm
from cutaway.models.checkpoint import CheckpointSource
from cutaway.models.digests import IGNORED_CONFIG_FIELDS, config_digest, module_checksum
from cutaway.models.flat_tokenizer import as_fast_tokenizer
from cutaway.models.lm import LM
from cutaway.models.load_tokenizer import need_fast_tokenizer, set_pad_token
from cutaway.models.placement import DTYPES
from cutaway.models.start_token import set_start_token
from cutaway.models.weights import kind_and_anatomy

ModelLike = str | Path | LM | nn.Module | tuple[Any, Any] | Mapping[str, Any]
"""A name, an open model, or a model of transformers with its tokenizer, as a pair or a dict."""
HOW = 'cutaway.open(model, tokenizer), (model, tokenizer), or {"model": ..., "tokenizer": ...}'


def model_and_tokenizer(value: Any, tokenizer: Any = None) -> tuple[Any, Any] | None:
    """Model and tokenizer in a value; None for a name or an open model; else BadSpec."""
    if isinstance(value, str | Path | LM):
        return None
    if isinstance(value, Mapping) and "model" in value:
        value, tokenizer = value["model"], value.get("tokenizer", tokenizer)
    elif isinstance(value, tuple) and len(value) == 2:
        value, tokenizer = value
    if not isinstance(value, nn.Module):
        raise BadSpec(
            f"A model is a name, a path, an open model or a model of transformers with its "
            f"tokenizer ({HOW}), got {type(value).__name__}."
        )
    if tokenizer is None:
        raise BadSpec(f"{type(value).__name__} needs its tokenizer: {HOW}.")
    return value, tokenizer


def open_in_memory(model: Any, tokenizer: Any, *, bos: str = "auto", check: bool = True) -> LM:
    """The LM of a model and its tokenizer."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        unload = " Call its merge_and_unload() first." if hasattr(model, "peft_config") else ""
        raise BadModel(f"{type(model).__name__} is not a model of transformers.{unload}")
    name = _name(model)
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    kind, row = kind_and_anatomy(CheckpointSource(name, Path()), config)
    module = _second_module(model)
    missing: list[str] = []
    if not _has_language_head(type(model).__name__):
        module, missing = _with_empty_head(module.base_model, kind)
    own, notes = _own_tokenizer(tokenizer, name)
    notes += set_start_token(own, model.config, bos, kind=kind, name=name)
    weights = module_checksum(module)
    lm = assemble_lm(
        module, own, kind, row, missing, name=name, digest=_digest(model.config, weights),
        dtype=_dtype(module, name), attention=str(module.config._attn_implementation), bos=bos,
        notes=notes,
    )  # fmt: skip
    if check:
        from cutaway.models.check import quick_check
        from cutaway.models.english_loss import show_warnings, with_loss_warnings

        lm = show_warnings(with_loss_warnings(quick_check(lm, remember=False), remember=False))
    return replace(lm, opened=(lm.digest, weights))


def _name(model: Any) -> str:
    """The name it was loaded by, or its class."""
    given = str(getattr(model.config, "_name_or_path", "") or "")
    return Path(given).name or type(model).__name__


def _second_module(model: Any) -> Any:
    """A module like `model` over the same weights, frozen and in evaluation mode."""
    if any(tensor.is_meta for tensor in model.parameters()):
        raise BadModel(
            f"{type(model).__name__} has weights on the meta device: not loaded, or offloaded. "
            "Load them, or open the checkpoint by name."
        )
    shared: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()
    }
    shared |= {id(buffer): buffer for buffer in model.buffers()}
    return copy.deepcopy(model, shared).eval()


def _has_language_head(architecture: str) -> bool:
    return architecture.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM"))


def _with_empty_head(body: Any, kind: ModelKind) -> tuple[Any, list[str]]:
    """The body in a language model whose head is zero, and the names of the head's weights."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    with torch.device("meta"):
        whole = auto.from_config(body.config)
    setattr(whole, whole.base_model_prefix, body)
    like = next(body.parameters())
    for child in whole.modules():
        for table in (child._parameters, child._buffers):
            for key, value in table.items():
                if value is not None and value.is_meta:
                    zeros = torch.zeros(value.shape, dtype=like.dtype, device=like.device)
                    made = nn.Parameter(zeros, requires_grad=False)
                    table[key] = made if table is child._parameters else zeros
    missing = [n for n, _ in whole.named_parameters() if not n.startswith(whole.base_model_prefix)]
    whole.tie_weights()
    return whole.eval(), missing


def _own_tokenizer(tokenizer: Any, name: str) -> tuple[Any, tuple[str, ...]]:
    """A copy of the tokenizer with a padding token, and notes."""
    own = as_fast_tokenizer(copy.deepcopy(tokenizer))
    need_fast_tokenizer(own, f"The tokenizer of {name!r}")
    return own, set_pad_token(own, f"The tokenizer of {name!r}")


def _digest(config: Any, weights: str) -> str:
    stored = json.loads(config.to_json_string(use_diff=False))
    fields = {k: v for k, v in stored.items() if k not in IGNORED_CONFIG_FIELDS}
    return digest_json({"weights": weights, "config": config_digest([], fields)})


def _dtype(module: Any, name: str) -> str:
    """The precision of the weights."""
    found = {p.dtype for p in module.parameters()}
    for word, dtype in DTYPES.items():
        if dtype in found:
            return word
    raise BadModel(f"{name!r} has weights of type {found}; expected one of {', '.join(DTYPES)}.")
