"""A tiny random checkpoint of every family that transformers has a causal or masked class for."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto import modeling_auto

from tests.every_family.sizes import BY_FAMILY, DECODERS, ROBERTA_LIKE, SIZES
from tests.tiny import _shake, tiny_tokenizer

AUTO = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}
EVERY_FAMILY = [
    (family, kind)
    for kind, table in (
        ("causal", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        ("masked", modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    )
    for family in table
]
LARGEST = 10_000_000
NOT_PARTS = ("per_layer_config",)


def tiny_of(family: str, kind: str, folder: Path, **changes: Any) -> Path:
    """A folder with a random checkpoint of the family and a tokenizer."""
    tokenizer = tiny_tokenizer(_style(family, kind))
    config = tiny_config(family, kind, tokenizer, **changes)
    with torch.device("meta"):
        size = sum(p.numel() for p in AUTO[kind].from_config(config).parameters())
    assert size < LARGEST, f"tiny {family} has {size:,} weights"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AUTO[kind].from_config(config).eval().float()
        fixed = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
        _shake(model)
        model.load_state_dict(fixed, strict=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_config(family: str, kind: str, tokenizer: Any, **changes: Any) -> Any:
    """The family's default config with every size in it made small."""
    default = AutoConfig.for_model(family)
    special = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    tokens = {"vocab_size": len(tokenizer)} | {k: v or 0 for k, v in special.items()}
    fields = default.to_dict()
    wanted = _sizes(fields, default.attribute_map) | tokens
    for name, part in fields.items():
        if isinstance(part, dict) and name.endswith("_config") and name not in NOT_PARTS:
            kept = {"model_type": part["model_type"]} if "model_type" in part else {}
            wanted[name] = kept | _sizes(part, {}) | tokens
    if kind == "causal" and family in DECODERS:
        wanted["is_decoder"] = True
    return AutoConfig.for_model(family, **_joined(wanted, BY_FAMILY.get(family, {}) | changes))


def _sizes(fields: dict, names: dict) -> dict:
    """The small value of each size that a config has, under the name that it uses itself."""
    return {names.get(name, name): n for name, n in SIZES.items() if name in {*fields, *names}}


def _joined(one: dict, two: dict) -> dict:
    """Both, with `two` winning at any depth; None removes."""
    both = one | two
    for name in one.keys() & two.keys():
        if isinstance(one[name], dict) and isinstance(two[name], dict):
            both[name] = _joined(one[name], two[name])
    return {name: value for name, value in both.items() if value is not None}


def _style(family: str, kind: str) -> str:
    if family in ROBERTA_LIKE:
        return "roberta"
    return "bert" if kind == "masked" or family in DECODERS else "llama"
