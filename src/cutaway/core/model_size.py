"""The memory that a model and the work with it take, from a few sizes of the model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightCopies:
    """How many copies of the weights a command holds in addition to the model."""

    count: float = 0.0
    """In memory: gradients, states of an optimizer."""
    embeddings: bool = True
    """Whether they include the embeddings."""
    in_files: float = 0.0
    """On a CPU these are views of files, which take memory only while it is free."""

    def on(self, device: str) -> "WeightCopies":
        """The copies on a device: other devices have no files."""
        if device == "cpu":
            return self
        return WeightCopies(self.count + self.in_files, self.embeddings)


NO_COPIES = WeightCopies()
PROGRAM_BYTES = 900_000_000
"""Python with the libraries, a tokenizer and the data."""
READ_TOKENS = 1024
"""Tokens in a forward pass over texts, about."""
# Vectors per token that a block holds; for gradients every block's are kept.
BLOCK_STATES = 28
LOGIT_COPIES = 3


@dataclass(frozen=True)
class ModelSize:
    """The number of weights, and of those in the largest tensor, the embeddings; the shape."""

    weights: int
    largest: int
    width: int = 0
    layers: int = 0
    vocab: int = 0

    def bytes(self, itemsize: int, copies: WeightCopies = NO_COPIES) -> int:
        """Memory of the model and of copies of its weights."""
        copied = self.weights if copies.embeddings else self.weights - self.largest
        return round(itemsize * (self.weights + copies.count * copied))

    def reading(self, tokens: int = READ_TOKENS) -> int:
        """Memory of a forward pass over this many tokens, in float32."""
        return 4 * tokens * BLOCK_STATES * self.width

    def training(self, tokens: int) -> int:
        """Memory of a forward and backward pass over this many tokens, in float32."""
        states = BLOCK_STATES * self.width * max(self.layers, 1)
        return 4 * tokens * (states + LOGIT_COPIES * self.vocab)


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a command will need with a model."""

    weights: int
    copies: int
    """Copies of the weights: gradients, states of an optimizer, a second model."""
    states: int
    """The states of a batch, and tables of the method."""
    file: int = 0
    """The largest file of the checkpoint, which is in memory while it is read."""
    views: int = 0
    """Copies of the weights in files that the system may keep in memory; not in the total."""

    @property
    def total(self) -> int:
        """The peak: while the weights are read, or while the command works."""
        return self.weights + max(self.file, self.copies + self.states) + PROGRAM_BYTES

    def sentence(self, name: str) -> str:
        """The need in one line."""
        parts = [f"weights {gigabytes(self.weights)}"]
        parts += [f"copies of weights {gigabytes(self.copies)}"] if self.copies else []
        parts += [f"activations {gigabytes(self.states)}", f"libraries {gigabytes(PROGRAM_BYTES)}"]
        files = f", and {gigabytes(self.views)} of files if it is free" if self.views else ""
        return f"Memory with {name}: about {gigabytes(self.total)} ({', '.join(parts)}){files}"


def gigabytes(size: float) -> str:
    """Bytes as gigabytes in words."""
    return f"{size / 1e9:.1f} GB" if size >= 5e7 else "below 0.1 GB"
