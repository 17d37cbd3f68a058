"""The memory that a checkpoint takes, from its headers, before anything is loaded."""

import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from cutaway.core.errors import NoRoom
from cutaway.models.checkpoint import tensor_shapes

WeightCopies = tuple[float, bool]
"""How many copies of the weights are held besides the model (gradients, states of an optimizer),
and whether they include the embeddings."""
NO_COPIES: WeightCopies = (0.0, True)


@dataclass(frozen=True)
class CheckpointSize:
    """The number of weights in a checkpoint, and of those in its largest tensor, the embeddings."""

    weights: int
    largest: int

    def bytes(self, itemsize: int, copies: WeightCopies = NO_COPIES) -> int:
        """Memory of the model and of copies of its weights."""
        count, embeddings = copies
        copied = self.weights if embeddings else self.weights - self.largest
        return round(itemsize * (self.weights + count * copied))


def checkpoint_size(files: list[Path]) -> CheckpointSize:
    """The size of a checkpoint, from the headers of its files."""
    counts = [math.prod(shape) for shape in tensor_shapes(files)]
    return CheckpointSize(sum(counts), max(counts, default=0))


def need_memory(
    name: str, size: CheckpointSize, itemsize: int, copies: WeightCopies = NO_COPIES
) -> None:
    """NoRoom unless the model and what is computed with it fit into the free memory."""
    free = psutil.virtual_memory().available
    model, total = size.weights * itemsize, size.bytes(itemsize, copies)
    if total <= free:
        return
    parts = f"The weights of {name!r} take {model / 1e9:.1f} GB of memory"
    if copies[0]:
        parts += (
            f", and with gradients, optimizer states and other copies of them this needs about "
            f"{total / 1e9:.1f} GB"
        )
    advice = "Train fewer weights, choose" if copies[0] and model <= free else "Choose"
    raise NoRoom(
        f"{parts}; {free / 1e9:.1f} GB are free. {advice} a smaller dtype (bfloat16), another "
        "device (map uses all of them and the disk) or a smaller model."
    )
