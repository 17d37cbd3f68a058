"""Rows in, shards out: a buffer that never holds more than one shard's worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from cutaway.core.errors import CutawayError, Mismatch
from cutaway.store.shards import RowNumbers, write_shard
from cutaway.store.tensors import check_same_form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class _ShardBuffer:
    """Appended blocks that will share one shard: the same columns for the same rows.

    Room for a whole shard is taken once and used again for the next one. Blocks kept one by one
    would lie scattered between the model's own short-lived tensors and pin memory many times
    their size.
    """

    room: dict[str, "Tensor"]
    """A tensor per column, filled from the front."""
    filled: int = 0
    rows: list[RowNumbers] = field(default_factory=list)
    lengths: list[RowNumbers] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """What is on the pile."""
        return sum(block[: self.filled].nbytes for block in self.room.values())

    def fits(self, more: int) -> bool:
        """Whether so many more items have room."""
        return all(self.filled + more <= len(block) for block in self.room.values())

    def add(
        self, rows: RowNumbers, lengths: RowNumbers | None, columns: Mapping[str, "Tensor"]
    ) -> None:
        """All columns of a block at once, so that a pile is whole whenever it is looked at."""
        more = len(next(iter(columns.values())))
        for name, block in columns.items():
            self.room[name][self.filled : self.filled + more].copy_(block.detach())
        self.rows.append(rows)
        if lengths is not None:
            self.lengths.append(lengths)
        self.filled += more

    def write(self, folder: Path) -> None:
        """The pile as a shard; it is empty afterwards."""
        if self.rows:
            blocks = {name: [block[: self.filled]] for name, block in self.room.items()}
            write_shard(folder, self.rows, blocks, self.lengths)
        self.filled, self.rows, self.lengths = 0, [], []


class ActivationWriter:
    """Collects rows and writes a shard whenever `shard_bytes` are together.

    Leaving the `with` block writes the rest, also when it is left by an exception: what was
    appended is whole, so it is kept and need not be computed again.
    """

    def __init__(self, folder: Path, rows: int, shard_bytes: int) -> None:
        """A writer into a shelf's folder, for row numbers below `rows`."""
        self._folder, self._limit, self._shard_bytes = folder, rows, shard_bytes
        self._piles: dict[tuple[bool, tuple[str, ...]], _ShardBuffer] = {}

    def append(self, row_numbers: ArrayLike, columns: Mapping[str, "Tensor"]) -> None:
        """One block (m, ...) per column, for the m rows named."""
        rows = self._checked(row_numbers)
        _check_length(columns, len(rows))
        self._add(rows, None, columns)

    def append_ragged(
        self, row_numbers: ArrayLike, lengths: ArrayLike, columns: Mapping[str, "Tensor"]
    ) -> None:
        """One block (sum of lengths, ...) per column: `lengths[i]` tokens for row i."""
        rows, sizes = self._checked(row_numbers), _integers(lengths, "lengths")
        if len(sizes) != len(rows) or (sizes < 0).any():
            raise Mismatch(f"{len(rows)} rows need as many lengths >= 0, got {sizes.tolist()!r}.")
        _check_length(columns, int(sizes.sum()))
        self._add(rows, sizes, columns)

    def flush(self) -> None:
        """Everything appended so far is on the disk."""
        for pile in self._piles.values():
            pile.write(self._folder)

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Writes the rest; an error on the way out doesn't hide the one that led here."""
        try:
            self.flush()
        except CutawayError as late:
            if error is None:
                raise
            error.add_note(f"The rows in memory could not be kept either: {late}")

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
        pile = self._pile(columns, ragged=lengths is not None)
        pile.add(rows, lengths, columns)
        if pile.bytes >= self._shard_bytes:
            pile.write(self._folder)

    def _pile(self, columns: Mapping[str, "Tensor"], *, ragged: bool) -> _ShardBuffer:
        """The pile these columns belong to, with room for them."""
        key, more = (ragged, tuple(sorted(columns))), len(next(iter(columns.values())))
        pile = self._piles.get(key)
        if pile is not None:
            for name, block in columns.items():
                check_same_form(name, [pile.room[name], block])
            if pile.fits(more):
                return pile
            pile.write(self._folder)
        if pile is None or not pile.fits(more):
            self._piles[key] = _ShardBuffer(_allocate(columns, self._shard_bytes, more))
        return self._piles[key]


def _allocate(columns: Mapping[str, "Tensor"], shard_bytes: int, more: int) -> dict[str, "Tensor"]:
    """An empty tensor per column, together a shard's worth, and never less than one block."""
    import torch

    item = sum(block[:1].nbytes for block in columns.values())
    items = max(shard_bytes // max(item, 1), more)
    # A tensor born in inference mode could not be filled outside of it.
    with torch.inference_mode(mode=False):
        return {
            name: torch.empty((items, *block.shape[1:]), dtype=block.dtype)
            for name, block in columns.items()
        }


def _integers(values: ArrayLike, label: str) -> RowNumbers:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise Mismatch(f"The {label} must be a list of whole numbers, got {array.dtype}.")
    return array.astype(np.int64)


def _check_length(columns: Mapping[str, "Tensor"], expected: int) -> None:
    for name, block in columns.items():
        if block.ndim == 0 or len(block) != expected:
            shape: Sequence[int] = tuple(block.shape)
            raise Mismatch(f"Column {name!r} has shape {shape}, expected {expected} in front.")
