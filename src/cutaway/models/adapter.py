"""PEFT adapters, merged into their base: the result is an ordinary model."""

from pathlib import Path
from typing import Any

from safetensors import safe_open

from cutaway.core.errors import BadModel, Mismatch, Missing
from cutaway.models.digests import config_digest
from cutaway.models.folder import need_weights, read_json
from cutaway.models.quiet import quiet


def merge_adapter(module: Any, folder: Path) -> Any:
    """The base with the adapter merged into its weights."""
    need_adapter(folder)
    peft = _peft()
    try:
        with quiet():
            joined = peft.PeftModel.from_pretrained(module, folder, is_trainable=False)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise Mismatch(f"Adapter {folder} doesn't fit this base: {_first_line(error)}.") from None
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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[1] if len(lines) > 1 and lines[0].endswith(":") else lines[0]).rstrip(".")
