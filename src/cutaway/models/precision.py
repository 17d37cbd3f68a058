"""The precision in which a checkpoint stores its weights, whatever it is opened in."""

from collections.abc import Iterable
from pathlib import Path

from safetensors import safe_open

from cutaway.models.checkpoint import fetch_checkpoint, need_weights

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of a number in each precision."""
HEADER_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Precisions by their names in the header of a safetensors file."""


def coarsest(precisions: Iterable[str]) -> str:
    """The precision with the fewest digits."""
    return min(precisions, key=lambda name: DIGITS[name])


def stored_precision(name: str, *, offline: bool = False) -> str:
    """The coarsest precision among the stored weights of a checkpoint, from its headers."""
    return coarsest(stored_precisions(need_weights(fetch_checkpoint(name, offline=offline).folder)))


def stored_precisions(files: Iterable[Path]) -> set[str]:
    """Every floating-point precision in the files; float32 if there is none."""
    found = set()
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            found |= {tensors.get_slice(name).get_dtype() for name in list(tensors.keys())}
    return {HEADER_NAMES[name] for name in found if name in HEADER_NAMES} or {"float32"}
