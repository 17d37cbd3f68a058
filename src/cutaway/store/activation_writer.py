"""Write rows to shards through a buffer of at most one shard."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from cutaway.core.errors import CutawayError, Mismatch
from cutaway.store.shards import RowNumbers, write_shard
from cutaway.store.snapshots import SaveClock
from cutaway.store.tensors import check_same_form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class _ShardBuffer:
    """Blocks that will be written as one shard: the same columns for the same rows.

    Memory for a full shard is allocated once and reused. Separate blocks would fragment the
    memory between the model's short-lived tensors and hold many times their size.
    """

    buffers: dict[str, "Tensor"]
    """One tensor per column; the first `filled` items are used."""
    filled: int = 0
    rows: list[RowNumbers] = field(default_factory=list)
    lengths: list[RowNumbers] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes in use."""
        return sum(block[: self.filled].nbytes for block in self.buffers.values())

    def fits(self, more: int) -> bool:
        """Whether `more` items fit."""
        return all(self.filled + more <= len(block) for block in self.buffers.values())

    def add(
        self, rows: RowNumbers, lengths: RowNumbers | None, columns: Mapping[str, "Tensor"]
    ) -> None:
        """Append all columns of a block at once, so that the buffer is always consistent."""
        more = len(next(iter(columns.values())))
        for name, block in columns.items():
            self.buffers[name][self.filled : self.filled + more].copy_(block.detach())
        self.rows.append(rows)
        if lengths is not None:
            self.lengths.append(lengths)
        self.filled += more

    def write(self, folder: Path) -> None:
        """Write the buffer as a shard and empty it."""
        if self.rows:
            blocks = {name: [block[: self.filled]] for name, block in self.buffers.items()}
            write_shard(folder, self.rows, blocks, self.lengths)
        self.filled, self.rows, self.lengths = 0, [], []


class ActivationWriter:
    """Collects rows and writes a shard when `shard_bytes` are reached, or when a save is due.

    Leaving the `with` block writes the rest, also after an exception: rows that were appended
    are complete and need not be computed again.
    """

    def __init__(self, folder: Path, rows: int, shard_bytes: int) -> None:
        """A writer into a table's folder, for row numbers below `rows`."""
        self._folder, self._limit, self._shard_bytes = folder, rows, shard_bytes
        self._buffers: dict[tuple[bool, tuple[str, ...]], _ShardBuffer] = {}
        self._clock = SaveClock()

    def append(self, row_numbers: ArrayLike, columns: Mapping[str, "Tensor"]) -> None:
        """Append one block (m, ...) per column, for m rows."""
        rows = self._checked(row_numbers)
        _check_length(columns, len(rows))
        self._add(rows, None, columns)

    def append_ragged(
        self, row_numbers: ArrayLike, lengths: ArrayLike, columns: Mapping[str, "Tensor"]
    ) -> None:
        """Append one block (sum of lengths, ...) per column: `lengths[i]` tokens for row i."""
        rows, sizes = self._checked(row_numbers), _integers(lengths, "lengths")
        if len(sizes) != len(rows) or (sizes < 0).any():
            raise Mismatch(f"{len(rows)} rows need as many lengths >= 0, got {sizes.tolist()!r}.")
        _check_length(columns, int(sizes.sum()))
        self._add(rows, sizes, columns)

    def flush(self) -> None:
        """Write everything that was appended so far."""
        for buffer in self._buffers.values():
            buffer.write(self._folder)

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the rest; an error here doesn't hide the one that ended the block."""
        try:
            self.flush()
        except CutawayError as late:
            if error is None:
                raise
            error.add_note(f"The rows in memory could not be saved either: {late}")

    def _checked(self, row_numbers: ArrayLike) -> RowNumbers:
        rows = _integers(row_numbers, "row numbers")
        wrong = rows[(rows < 0) | (rows >= self._limit)]
        if len(wrong):
            raise Mismatch(f"Row number {int(wrong[0])} is not in 0..{self._limit - 1}.")
        return rows

    def _add(
        self, rows: RowNumbers, lengths: RowNumbers | None, columns: Mapping[str, "Tensor"]
    ) -> None:
        if not len(rows) or not columns:
            return
        buffer = self._buffer(columns, ragged=lengths is not None)
        buffer.add(rows, lengths, columns)
        if buffer.bytes >= self._shard_bytes:
            buffer.write(self._folder)
        elif self._clock.due():
            began = time.monotonic()
            self.flush()
            self._clock.saved(began)

    def _buffer(self, columns: Mapping[str, "Tensor"], *, ragged: bool) -> _ShardBuffer:
        """The buffer for these columns, with space for another block."""
        key, more = (ragged, tuple(sorted(columns))), len(next(iter(columns.values())))
        buffer = self._buffers.get(key)
        if buffer is not None:
            for name, block in columns.items():
                check_same_form(name, [buffer.buffers[name], block])
            if buffer.fits(more):
                return buffer
            buffer.write(self._folder)
        if buffer is None or not buffer.fits(more):
            self._buffers[key] = _ShardBuffer(_allocate(columns, self._shard_bytes, more))
        return self._buffers[key]


def _allocate(columns: Mapping[str, "Tensor"], shard_bytes: int, more: int) -> dict[str, "Tensor"]:
    """Empty tensors, one per column: a full shard together, and at least one block."""
    import torch

    item = sum(block[:1].nbytes for block in columns.values())
    items = max(shard_bytes // max(item, 1), more)
    # A tensor created in inference mode could not be filled outside of it.
    with torch.inference_mode(mode=False):
        return {
            name: torch.empty((items, *block.shape[1:]), dtype=block.dtype)
            for name, block in columns.items()
        }


def _integers(values: ArrayLike, label: str) -> RowNumbers:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise Mismatch(f"The {label} must be a list of integers, got {array.dtype}.")
    return array.astype(np.int64)


def _check_length(columns: Mapping[str, "Tensor"], expected: int) -> None:
    for name, block in columns.items():
        if block.ndim == 0 or len(block) != expected:
            shape: Sequence[int] = tuple(block.shape)
            raise Mismatch(
                f"Column {name!r} has shape {shape}, expected {expected} as the first dimension."
            )
