"""Rows in, shards out: a buffer that never holds more than one shard's worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from cutaway.core.errors import CutawayError, Mismatch
from cutaway.store.shards import Rows, write_shard
from cutaway.store.tensors import same_form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class _Pile:
    """Appended blocks that will share one shard: the same columns for the same rows."""

    rows: list[Rows] = field(default_factory=list)
    lengths: list[Rows] = field(default_factory=list)
    blocks: dict[str, list["Tensor"]] = field(default_factory=dict)


class Writer:
    """Collects rows and writes a shard whenever `shard_bytes` are together.

    Leaving the `with` block writes the rest, also when it is left by an exception: what was
    appended is whole, so it is kept and need not be computed again.
    """

    def __init__(self, folder: Path, rows: int, shard_bytes: int) -> None:
        """A writer into a shelf's folder, for row numbers below `rows`."""
        self._folder, self._limit, self._shard_bytes = folder, rows, shard_bytes
        self._piles: dict[tuple[bool, tuple[str, ...]], _Pile] = {}
        self._bytes = 0

    def append(self, row_numbers: ArrayLike, columns: Mapping[str, "Tensor"]) -> None:
        """One block (m, ...) per column, for the m rows named."""
        rows = self._checked(row_numbers)
        _check_length(columns, len(rows))
        self._add(rows, None, columns)

    def append_ragged(
        self, row_numbers: ArrayLike, lengths: ArrayLike, columns: Mapping[str, "Tensor"]
    ) -> None:
        """One block (sum of lengths, ...) per column: `lengths[i]` tokens for row i."""
        rows, sizes = self._checked(row_numbers), _whole_numbers(lengths, "lengths")
        if len(sizes) != len(rows) or (sizes < 0).any():
            raise Mismatch(f"{len(rows)} rows need as many lengths >= 0, got {sizes.tolist()!r}.")
        _check_length(columns, int(sizes.sum()))
        self._add(rows, sizes, columns)

    def flush(self) -> None:
        """Everything appended so far is on the disk."""
        for key in list(self._piles):
            pile = self._piles[key]
            write_shard(self._folder, pile.rows, pile.blocks, pile.lengths)
            del self._piles[key]
        self._bytes = 0

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

    def _checked(self, row_numbers: ArrayLike) -> Rows:
        rows = _whole_numbers(row_numbers, "row numbers")
        wrong = rows[(rows < 0) | (rows >= self._limit)]
        if len(wrong):
            raise Mismatch(f"Row number {int(wrong[0])} is not in 0..{self._limit - 1}.")
        return rows

    def _add(self, rows: Rows, lengths: Rows | None, columns: Mapping[str, "Tensor"]) -> None:
        if not len(rows) or not columns:
            return
        key = (lengths is not None, tuple(sorted(columns)))
        pile = self._piles.get(key, _Pile())
        for name, block in columns.items():
            same_form(name, [*pile.blocks.get(name, [])[:1], block])
        # Copied: the caller's block is often a small view that would keep a big batch alive.
        copies = {name: block.detach().to("cpu", copy=True) for name, block in columns.items()}
        _extend(pile, rows, lengths, copies)
        self._piles[key] = pile
        self._bytes += sum(block.nbytes for block in copies.values())
        if self._bytes >= self._shard_bytes:
            self.flush()


def _extend(pile: _Pile, rows: Rows, lengths: Rows | None, columns: Mapping[str, "Tensor"]) -> None:
    """All columns of a block at once, so that a pile is whole whenever it is looked at."""
    pile.rows.append(rows)
    if lengths is not None:
        pile.lengths.append(lengths)
    for name, block in columns.items():
        pile.blocks.setdefault(name, []).append(block.contiguous())


def _whole_numbers(values: ArrayLike, label: str) -> Rows:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise Mismatch(f"The {label} must be a list of whole numbers, got {array.dtype}.")
    return array.astype(np.int64)


def _check_length(columns: Mapping[str, "Tensor"], expected: int) -> None:
    for name, block in columns.items():
        if block.ndim == 0 or len(block) != expected:
            shape: Sequence[int] = tuple(block.shape)
            raise Mismatch(f"Column {name!r} has shape {shape}, expected {expected} in front.")
