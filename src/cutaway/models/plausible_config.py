"""Whether a config belongs to the weights beside it: a small file with the config of a large model
would fill the memory, because weights that are missing are initialised."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadModel
from cutaway.models.anatomy import ModelKind

MAX_MISSING_WEIGHTS = 100_000_000
"""Weights that may be missing in a checkpoint: its head, computed position tables."""


def need_plausible_config(
    name: str, config: Any, kind: ModelKind, shapes: Sequence[Sequence[int]]
) -> None:
    """BadModel if the config describes a larger model than these tensors; nothing is built.

    Missing weights would be initialised: a small file with a large config would fill the memory.
    """
    if _config_layers(config) < 0:
        raise BadModel(
            f"{name!r}: its config has num_hidden_layers {_config_layers(config)}; a model has at "
            "least 0 layers. Correct config.json."
        )
    if _config_layers(config) > len(shapes):
        raise BadModel(
            f"{name!r}: its config has {_config_layers(config):,} layers, its files have "
            f"{len(shapes):,} tensors. The config belongs to another model."
        )
    largest = max((max(shape, default=1) for shape in shapes), default=1)
    if max(_config_integers(config.to_dict()), default=0) <= 4 * largest:
        return
    # Last, because it is slow: the model's shape without its weights.
    stored, described = sum(map(math.prod, shapes)), _config_parameter_count(name, config, kind)
    if described > 4 * stored + MAX_MISSING_WEIGHTS:
        raise BadModel(
            f"{name!r}: its config describes {described:,} weights, its files have "
            f"{stored:,}. The config belongs to another model."
        )


def _config_layers(config: Any) -> int:
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    return layers if isinstance(layers, int) else 0


def _config_integers(value: Any) -> Iterator[int]:
    """Every integer in a config, at any depth."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _config_integers(one)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _config_parameter_count(name: str, config: Any, kind: ModelKind) -> int:
    """The number of weights that the config describes, counted on the meta device."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    try:
        with quiet_transformers(), torch.device("meta"):
            return sum(p.numel() for p in auto.from_config(config).parameters())
    except Exception as error:  # impossible sizes can fail anywhere
        raise BadModel(f"{name!r}: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """The first line of another library's error, with the second if the first ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    reason = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    # The message of such an error doesn't say what kind it is.
    bare = isinstance(error, ArithmeticError | LookupError)
    return f"{type(error).__name__}: {reason}"[:300] if bare else reason[:300]
