"""The memory that a checkpoint takes, from its headers, before anything is loaded."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from cutaway.console import show_message
from cutaway.core.errors import NoRoom
from cutaway.core.model_size import NO_COPIES, MemoryNeed, ModelSize, WeightCopies, gigabytes
from cutaway.models.checkpoint import tensor_shapes
from cutaway.models.placement import DTYPES, Placement

QUANTISED_BYTES = {"int8": 1.0, "int4": 0.6}
"""Bytes of a weight of a linear layer, with its scales."""


@dataclass(frozen=True)
class Workload:
    """What a command keeps in memory besides the model."""

    copies: WeightCopies = NO_COPIES
    states: Callable[[ModelSize], int] = ModelSize.reading
    """Bytes of activations and tables."""

    def need(self, size: ModelSize, placement: Placement, file: int = 0) -> MemoryNeed:
        """The bytes for a model of this size."""
        itemsize, held = DTYPES[placement.dtype].itemsize, self.copies.on(placement.device)
        plain = size.bytes(itemsize)
        weights, copies = plain, size.bytes(itemsize, held) - plain
        views = size.bytes(itemsize, WeightCopies(held.in_files, held.embeddings)) - plain
        if placement.quantise != "none":
            linear = size.weights - size.largest
            weights = round(itemsize * size.largest + QUANTISED_BYTES[placement.quantise] * linear)
        return MemoryNeed(weights, copies, self.states(size), file, views)


def checkpoint_size(files: list[Path], config: Any = None) -> ModelSize:
    """The size of a checkpoint, from the headers of its files and from its config."""
    counts = [math.prod(shape) for shape in tensor_shapes(files)]
    text = None if config is None else config.get_text_config()
    names = ("hidden_size", "num_hidden_layers", "vocab_size")
    width, layers, vocab = (int(getattr(text, name, 0) or 0) for name in names)
    return ModelSize(sum(counts), max(counts, default=0), width, layers, vocab)


def need_memory(
    name: str, files: list[Path], config: Any, placement: Placement, workload: Workload | None
) -> None:
    """Show what a command will need with a model; NoRoom unless the weights and their copies fit.

    Activations are estimated, so they don't decide.
    """
    size, file = checkpoint_size(files, config), max(path.stat().st_size for path in files)
    need = (workload or Workload()).need(size, placement, file)
    free = free_memory(placement.device)
    if workload is not None:
        rest = "" if free is None else f"; {gigabytes(free)} free"
        show_message(f"{need.sentence(name)}{rest}.")
    if free is None or need.weights + need.copies <= free:
        return
    parts = f"The weights of {name!r} take {need.weights / 1e9:.1f} GB of memory"
    if need.copies:
        parts += (
            f", and with gradients, optimizer states and other copies of them this needs about "
            f"{(need.weights + need.copies) / 1e9:.1f} GB"
        )
    advice = "Train fewer weights, choose" if need.copies and need.weights <= free else "Choose"
    raise NoRoom(
        f"{parts}; {free / 1e9:.1f} GB are free. {advice} a smaller dtype (bfloat16), another "
        "device (map uses all of them and the disk) or a smaller model."
    )


def free_memory(device: str) -> int | None:
    """Free bytes of a device; None where they are not known (mps) or not one number (map)."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available) if device == "cpu" else None
