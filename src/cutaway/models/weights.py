"""Config and weights of a checkpoint folder, through transformers, from safetensors only."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cutaway.core.errors import BadModel
from cutaway.models.anatomy import Anatomy, ModelKind, anatomy_of
from cutaway.models.fetch import CheckpointSource
from cutaway.models.folder import tensor_shapes
from cutaway.models.quiet import quiet

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
ATTENTION_KERNELS = {"sdpa": None, "eager": "eager"}
"""None: transformers takes sdpa where the family has it."""
MAX_MISSING_WEIGHTS = 100_000_000
"""Weights that a checkpoint may lack and still be looked into: its head, positions made anew."""


def load_config(source: CheckpointSource, trust: bool) -> Any:
    """The config as transformers reads it; BadModel for an architecture it doesn't know."""
    from transformers import AutoConfig

    try:
        with quiet():
            return AutoConfig.from_pretrained(source.folder, trust_remote_code=trust)
    except Exception as error:  # a config's own checks raise bare Exceptions, and divide by zero
        raise BadModel(f"{source.name!r}: {_reason(error)}") from None


def kind_and_anatomy(source: CheckpointSource, config: Any) -> tuple[ModelKind, Anatomy | None]:
    """Causal or masked, and the family's row when there is one for that kind."""
    if getattr(config, "is_encoder_decoder", False):
        raise BadModel(
            f"{source.name!r} is an encoder-decoder ({config.model_type}); Cutaway opens causal "
            "and masked language models."
        )
    row = anatomy_of(config.model_type, config)
    kind = _kind_by_architecture(config) or (row.kind if row else None)
    if kind is None:
        made = ", ".join(config.architectures or ["nothing"])
        raise BadModel(
            f"{source.name!r} is neither a causal nor a masked language model: its config names "
            f"{made}. Expected ...ForCausalLM or ...ForMaskedLM."
        )
    return kind, row if row is not None and row.kind == kind else None


def _kind_by_architecture(config: Any) -> ModelKind | None:
    endings: dict[str, ModelKind] = {
        "ForCausalLM": "causal",
        "LMHeadModel": "causal",
        "ForMaskedLM": "masked",
    }
    for made in config.architectures or ():
        for ending, kind in endings.items():
            if made.endswith(ending):
                return kind
    return None


def need_plausible_config(
    source: CheckpointSource, config: Any, kind: ModelKind, files: list[Path]
) -> None:
    """BadModel when the config describes a model that its files can't fill; nothing is built.

    What the files lack would be made up: a small file with a large config would take all memory.
    """
    shapes = tensor_shapes(files)
    if _config_layers(config) > len(shapes):
        raise BadModel(
            f"{source.name!r}: its config says {_config_layers(config):,} layers, its files hold "
            f"{len(shapes):,} tensors. The config is of another model."
        )
    largest = max((max(shape, default=1) for shape in shapes), default=1)
    if max(_config_integers(config.to_dict()), default=0) <= 4 * largest:
        return
    # Only now, because it takes a moment: the model's shape without its weights.
    there, described = sum(map(math.prod, shapes)), _config_parameter_count(source, config, kind)
    if described > 4 * there + MAX_MISSING_WEIGHTS:
        raise BadModel(
            f"{source.name!r}: its config describes {described:,} weights, its files hold "
            f"{there:,}. The config is of another model."
        )


def _config_layers(config: Any) -> int:
    said = getattr(config.get_text_config(), "num_hidden_layers", 0)
    return said if isinstance(said, int) else 0


def _config_integers(value: Any) -> Iterator[int]:
    """Every whole number in a config, however deep."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _config_integers(one)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _config_parameter_count(source: CheckpointSource, config: Any, kind: ModelKind) -> int:
    """How many weights the config asks for, counted on a device that holds none."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto: Any = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    try:
        with quiet(), torch.device("meta"):
            return sum(p.numel() for p in auto.from_config(config).parameters())
    except Exception as error:  # as above: sizes that can't be come to light anywhere
        raise BadModel(f"{source.name!r}: {_reason(error)}") from None


def load_weights(
    folder: Path, config: Any, kind: ModelKind, dtype: str, attention: str, trust: bool
) -> tuple[Any, list[str]]:
    """The loaded model, and the weights that the checkpoint didn't have."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    try:
        with quiet():
            loaded: Any = auto.from_pretrained(
                folder,
                config=config,
                dtype=DTYPES[dtype],
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                trust_remote_code=trust,
                attn_implementation=ATTENTION_KERNELS[attention],
            )
    except Exception as error:  # as above
        raise BadModel(f"{folder} can't be loaded: {_reason(error)}") from None
    module, info = loaded
    return module, sorted(info["missing_keys"])


def has_trained_head(
    name: str, anatomy: Anatomy, unfilled: list[str]
) -> tuple[bool, tuple[str, ...]]:
    """Whether the head was in the checkpoint; BadModel when parts of the body weren't."""
    body = [key for key in unfilled if not key.startswith(tuple(anatomy.head))]
    if body:
        raise BadModel(
            f"{name!r} lacks {len(body)} weights of the model's body (first: {body[0]!r}): the "
            "checkpoint is incomplete or of another architecture than its config says."
        )
    if not unfilled:
        return True, ()
    return False, ("The checkpoint has no language-model head: no logits, layers only.",)


def _reason(error: Exception) -> str:
    """The first telling line of somebody else's error, with the next where it only leads to it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    # A division by zero says what it does, not where.
    bare = isinstance(error, ArithmeticError | LookupError)
    return f"{type(error).__name__}: {said}"[:300] if bare else said[:300]
