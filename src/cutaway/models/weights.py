"""Config and weights of a checkpoint folder, through transformers, from safetensors only; PEFT
adapters are merged into their base."""

from pathlib import Path
from typing import Any

from safetensors import safe_open

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadModel, Mismatch, Missing
from cutaway.models.anatomy import Anatomy, ModelKind, anatomy_of
from cutaway.models.checkpoint import CheckpointSource, need_weights, read_json
from cutaway.models.digests import config_digest
from cutaway.models.placement import Placement
from cutaway.models.plausible_config import reason_of

ATTENTION_KERNELS = {"sdpa": None, "eager": "eager"}
"""None: transformers uses sdpa if the family has it."""

UNUSED_PARTS = {"pooler", "contact_head"}
"""Parts of a body that neither hidden states nor logits depend on."""


def load_config(source: CheckpointSource, trust: bool) -> Any:
    """The config as transformers reads it; BadModel for an unknown architecture."""
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(source.folder, trust_remote_code=trust)
    except Exception as error:  # configs raise bare Exceptions, and divide by zero
        raise BadModel(f"{source.name!r}: {reason_of(error)}") from None


def kind_and_anatomy(source: CheckpointSource, config: Any) -> tuple[ModelKind, Anatomy | None]:
    """Causal or masked, and the family's row if there is one for that kind."""
    if getattr(config, "is_encoder_decoder", False):
        raise BadModel(
            f"{source.name!r} is an encoder-decoder ({config.model_type}); Cutaway opens causal "
            "and masked language models."
        )
    row = anatomy_of(config.model_type, config)
    kind = _kind_by_architecture(config) or (row.kind if row else _kind_by_family(config))
    if kind is None:
        named = ", ".join(config.architectures or ["nothing"])
        raise BadModel(
            f"{source.name!r} is neither a causal nor a masked language model: its config names "
            f"{named}. Expected ...ForCausalLM or ...ForMaskedLM."
        )
    return kind, row if row is not None and row.kind == kind else None


def _language_models(kind: ModelKind) -> dict[str, str]:
    """The class of transformers for each family that has a language model of this kind."""
    from transformers.models.auto import modeling_auto as auto

    causal, masked = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return dict(causal if kind == "causal" else masked)


def _kind_by_family(config: Any) -> ModelKind | None:
    """The kind of a model that was saved without a language-model head, by its family."""
    kinds: tuple[ModelKind, ...] = ("masked", "causal")
    found = [kind for kind in kinds if config.model_type in _language_models(kind)]
    return None if not found else found[getattr(config, "is_decoder", False) and len(found) - 1]


def _kind_by_architecture(config: Any) -> ModelKind | None:
    """The kind of the class that the config names."""
    made = set(config.architectures or ())
    kinds: tuple[ModelKind, ...] = ("causal", "masked")
    named = [kind for kind in kinds if _language_models(kind).get(config.model_type) in made]
    if named:
        # xlm has one class for both.
        return named[0] if len(named) == 1 or getattr(config, "causal", False) else named[-1]
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


def load_weights(
    folder: Path, config: Any, kind: ModelKind, placement: Placement, attention: str, trust: bool
) -> tuple[Any, list[str]]:
    """The loaded model, and the weights missing in the checkpoint."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    try:
        with quiet_transformers():
            loaded: Any = auto.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                trust_remote_code=trust,
                attn_implementation=ATTENTION_KERNELS[attention],
                **placement.load_options(),
            )
    except Exception as error:  # as above
        raise BadModel(f"{folder} can't be loaded: {reason_of(error)}") from None
    module, info = loaded
    return module, sorted(info["missing_keys"])


def has_trained_head(
    name: str, anatomy: Anatomy, missing: list[str]
) -> tuple[bool, tuple[str, ...]]:
    """Whether the checkpoint has the head, with a note; BadModel if the body is incomplete."""
    missing = [key for key in missing if not UNUSED_PARTS & set(key.split("."))]
    body = [key for key in missing if not key.startswith(tuple(anatomy.head))]
    if body:
        raise BadModel(
            f"{name!r} lacks {len(body)} weights of the model's body (first: {body[0]!r}): the "
            "checkpoint is incomplete or of another architecture than its config says."
        )
    if not missing:
        return True, ()
    return False, ("The checkpoint has no language-model head: no logits, layers only.",)


def merge_adapter(module: Any, folder: Path) -> Any:
    """The base with the adapter merged into its weights."""
    need_adapter(folder)
    peft = _peft()
    try:
        with quiet_transformers():
            joined = peft.PeftModel.from_pretrained(module, folder, is_trainable=False)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise Mismatch(
            f"Adapter {folder} doesn't fit this base: {reason_of(error).rstrip('.')}."
        ) from None
    _need_all_tensors_used(joined, folder, peft)
    try:
        unload = joined.merge_and_unload
    except AttributeError:
        kind = read_json(folder / "adapter_config.json").get("peft_type")
        raise BadModel(
            f"Adapter {folder} is of type {kind!r}, which can't be merged into the base. LoRA and "
            "similar types can."
        ) from None
    return unload()


def need_adapter(folder: Path) -> list[Path]:
    """The adapter's weight files; BadModel if it isn't a PEFT adapter in safetensors."""
    if not (folder / "adapter_config.json").is_file():
        raise BadModel(f"{folder} is not a PEFT adapter: it has no adapter_config.json.")
    return need_weights(folder, "adapter_model")


def adapter_digest(folder: Path) -> str:
    """A digest of an adapter: its weights and its config."""
    config = read_json(folder / "adapter_config.json")
    config.pop("base_model_name_or_path", None)
    return config_digest(need_adapter(folder), config)


def _need_all_tensors_used(joined: Any, folder: Path, peft: Any) -> None:
    """Mismatch unless every stored tensor is used: PEFT only warns."""
    with safe_open(need_adapter(folder)[0], framework="pt") as stored:
        names = set(stored.keys())
    used = set(peft.get_peft_model_state_dict(joined))
    unused, missing = sorted(names - used), sorted(used - names)
    if unused or missing:
        example = (unused or missing)[0]
        raise Mismatch(
            f"Adapter {folder} doesn't fit this base: {len(unused)} of its tensors are "
            f"unused and {len(missing)} are missing (first: {example!r}). Open it with the base it "
            "was trained on."
        )


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise Missing(
            "base+adapter needs the package peft. Install it with: pip install 'cutaway[peft]'"
        ) from None
    return peft
