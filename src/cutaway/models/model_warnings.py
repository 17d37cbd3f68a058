"""Faults that no consistency check shows, because plain transformers has them too.

Each gives a warning, never a refusal: the model is read as transformers computes it.

- `known_bad_version`: this version of transformers computes the family wrongly;
- `tied_weights`: the config and the file disagree on whether the embeddings are one matrix;
- `tokenizer_differs`: transformers loads another tokenizer than the file (`tokenizer_file.py`);
- `start_token`, `loss_too_high`: measured on English text (`english_loss.py`);
- `rounding`: a consistency check is above the rounding noise, or that is large (`check.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version
from safetensors import safe_open
from torch import Tensor

from cutaway.models.anatomy import Anatomy

COMPARED_ROWS = 64


@dataclass(frozen=True)
class ModelWarning:
    """Something about a model that the user should know before trusting a number."""

    name: str
    message: str


@dataclass(frozen=True)
class BadVersions:
    """Versions of transformers that compute a family wrongly."""

    family: str
    first: str
    """The first version with the fault."""
    fixed: str
    """The first version without it."""
    fault: str
    fix: str
    """The upstream fix."""


_PULL = "https://github.com/huggingface/transformers/pull/"
KNOWN_BAD = (
    BadVersions(
        "olmo3", "5.0.0", "5.13.0",
        "YaRN is also applied to the layers with sliding-window attention", f"{_PULL}46911",
    ),
    BadVersions(
        "deepseek_v2", "0", "5.15.0",
        "the attention scale lacks the factor mscale_all_dim of YaRN", f"{_PULL}47435",
    ),
    BadVersions(
        "mistral4", "0", "5.15.0",
        "the attention scale lacks the factor mscale_all_dim of YaRN", f"{_PULL}47435",
    ),
)  # fmt: skip
"""Only faults with a named upstream fix; wrong tokenizers are found by comparing ids instead."""


def version_warnings(
    family: str, installed: str | None = None, table: Iterable[BadVersions] = KNOWN_BAD
) -> tuple[ModelWarning, ...]:
    """A warning for each known fault of the installed transformers in this family."""
    installed = installed or version("transformers")
    return tuple(
        ModelWarning(
            "known_bad_version",
            f"transformers {installed} computes {family} models wrongly: {row.fault}. Fixed in "
            f"{row.fixed} ({row.fix}): pip install 'transformers>={row.fixed}'.",
        )
        for row in table
        if row.family == family and Version(row.first) <= Version(installed) < Version(row.fixed)
    )


def tied_weights_warnings(
    config: Any, module: Any, anatomy: Anatomy, files: Sequence[Path], missing: Sequence[str]
) -> tuple[ModelWarning, ...]:
    """A warning if the config and the file disagree on whether the two embeddings are one.

    `missing` are the weights that the checkpoint lacks.
    """
    text_config = config.get_text_config()
    tied = bool(getattr(text_config, "tie_word_embeddings", False))
    head, table = (f"{name}.weight" for name in (anatomy.decoder, anatomy.embeddings))
    stored = _stored_rows(files, head)
    if tied and stored is not None and not _same_rows(stored, module.get_parameter(table)):
        return (ModelWarning("tied_weights", _two_tensors(module, head, table)),)
    if not tied and head in missing:
        return (
            ModelWarning(
                "tied_weights",
                "The config says that the output embedding is not tied to the input embedding, "
                f"but the file has no {head!r}: the model has no logits here. If it was trained "
                'with tied embeddings, set "tie_word_embeddings": true in its config.json.',
            ),
        )
    return ()


def _two_tensors(module: Any, head: str, table: str) -> str:
    used = "the input embedding is used for both" if _shares(module, head, table) else (
        "each is used as it is in the file"
    )  # fmt: skip
    return (
        f"The config says that {head!r} is tied to {table!r}, but the file has two different "
        f"tensors; {used}. Ask where the file comes from, and set tie_word_embeddings in its "
        "config.json to what is right."
    )


def _stored_rows(files: Sequence[Path], name: str) -> tuple[list[int], Tensor] | None:
    """Some rows of a tensor of the checkpoint and their numbers; None if it isn't there."""
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            if name in tensors.keys():  # noqa: SIM118 (not a dict)
                part = tensors.get_slice(name)
                count = int(part.get_shape()[0])
                rows = sorted({i * count // COMPARED_ROWS for i in range(COMPARED_ROWS)})
                return rows, torch.cat([part[row : row + 1] for row in rows])
    return None


def _same_rows(stored: tuple[list[int], Tensor], loaded: Tensor) -> bool:
    rows, values = stored
    if loaded.device.type == "meta":  # offloaded: transformers compares nothing there either
        return True
    if rows[-1] >= len(loaded) or values.shape[1:] != loaded.shape[1:]:
        return False
    return torch.equal(values.to(loaded), loaded[rows])


def _shares(module: Any, head: str, table: str) -> bool:
    one, two = module.get_parameter(head), module.get_parameter(table)
    return bool(one.data_ptr() == two.data_ptr())
