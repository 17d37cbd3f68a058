"""Digests of weights and tokenizers, as files and in memory, which every cache key is made of."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.digest import digest_json, digest_text
from cutaway.home import read_memo, write_memo

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cutaway.models.lm import LM

# Where a checkpoint was saved or last loaded doesn't change what it computes.
IGNORED_CONFIG_FIELDS = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype"})


def weights_digest(files: Iterable[Path], config: Path) -> str:
    """A digest of a checkpoint: its weight files and its config."""
    fields = json.loads(config.read_text(encoding="utf-8"))
    config_fields = {
        key: value for key, value in fields.items() if key not in IGNORED_CONFIG_FIELDS
    }
    return config_digest(files, config_fields)


def config_digest(files: Iterable[Path], config: Mapping[str, Any]) -> str:
    """A digest of weight files and a config."""
    return digest_json(
        {"files": {f.name: file_digest(f) for f in files}, "config": _json_safe(config)}
    )


def _json_safe(value: Any) -> Any:
    """The value with infinity and NaN as text, which a digest would refuse."""
    if isinstance(value, Mapping):
        return {key: _json_safe(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_json_safe(one) for one in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def file_digest(path: Path) -> str:
    """The sha256 of a file: as recorded by the hub's cache, else computed once and cached."""
    recorded = recorded_digest(path)
    if recorded is not None:
        return recorded
    facts = path.stat()
    key = f"{path.absolute()}|{facts.st_size}|{facts.st_mtime_ns}"
    known = read_memo("digests", key)
    if isinstance(known, str):
        return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    write_memo("digests", key, digest)
    return digest


def recorded_digest(path: Path) -> str | None:
    """The sha256 that the hub's cache uses as the name of the file's blob, if it does."""
    blob = path.resolve()
    named = blob.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", blob.name)
    return blob.name if named else None


def tokenizer_digest(tokenizer: Any) -> str:
    """A digest of a tokenizer: its pipeline, special tokens, and the tokens it adds."""
    # Truncation and padding are settings of the last call, not properties of the tokenizer.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    special = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    added = tokenizer("a", return_attention_mask=False)["input_ids"]
    return digest_json([digest_text(tokenizer.backend_tokenizer.to_str()), special, added])


def checksum(values: Mapping[str, Tensor]) -> str:
    """A checksum of tensors in memory: every name, shape, type and bit."""
    # hashlib releases the GIL, so several tensors are hashed at once.
    with ThreadPoolExecutor() as pool:
        sums = pool.map(_sha256, values.values())
        return digest_json(
            {
                name: [list(value.shape), str(value.dtype).removeprefix("torch."), digest]
                for (name, value), digest in zip(values.items(), sums, strict=True)
            }
        )


def _sha256(value: Tensor) -> str:
    import torch

    flat = value.detach().to("cpu").contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


def module_checksum(module: nn.Module) -> str:
    """The checksum of a module's weights (tied ones once) and saved buffers.

    Weights that are offloaded have no values here and are left out.
    """
    from torch import Tensor

    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = {
        name: value
        for name, value in module.state_dict().items()
        if name not in parameters and isinstance(value, Tensor)
    }
    weights = dict(module.named_parameters()) | buffers
    return checksum({n: value for n, value in weights.items() if value.device.type != "meta"})


def with_checksum(lm: LM, *, same_each_time: bool) -> LM:
    """The model with a checksum of its weights, by which `LM.refresh_digest` detects changes.

    `same_each_time`: opening it again gives the same bits (no adapter is merged, no head is
    initialised), so the checksum is computed once and cached.
    """
    versions = [version("torch"), version("transformers")]
    key = digest_json([lm.digest, lm.dtype, *versions])
    checksum_opened = read_memo("prints", key) if same_each_time else None
    if not isinstance(checksum_opened, str):
        checksum_opened = module_checksum(lm.module)
        if same_each_time:
            write_memo("prints", key, checksum_opened)
    return replace(lm, opened=(lm.digest, checksum_opened))
