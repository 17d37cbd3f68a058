"""Read rows in a given order from shards that hold them in any order."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutaway.core.errors import Corrupt
from cutaway.core.lookup import lookup
from cutaway.store.shards import RowNumbers, Shard
from cutaway.store.tensors import DTYPES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Dtype = torch.dtype | str | None


def row_numbers(shard: Shard, rows: int) -> RowNumbers:
    """The shard's row numbers; Corrupt if they exceed the number of rows."""
    numbers = shard.rows
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < rows:
        raise Corrupt(f"{str(shard.path)!r} has row numbers beyond the table's {rows} rows.")
    return numbers


def gather_dense(
    shards: Sequence[Shard], column: str, wanted: RowNumbers, rows: int, dtype: "Dtype"
) -> "Tensor":
    """Values (n, ...) of the wanted rows, in this order."""
    import torch

    form = shards[0].columns[column]
    out = torch.empty((len(wanted), *form.shape), dtype=_output_dtype(form.dtype, dtype))
    for shard, targets, position in _locate_rows(shards, wanted, rows):
        block = _take(shard.block(column), position).to(out.dtype)
        out.index_copy_(0, torch.from_numpy(targets), block)
    return out


def gather_ragged(
    shards: Sequence[Shard], column: str, wanted: RowNumbers, rows: int, dtype: "Dtype"
) -> tuple["Tensor", "Tensor"]:
    """Concatenated values of the wanted rows, and the offset of each row."""
    import torch

    positions = list(_locate_rows(shards, wanted, rows))
    lengths = np.zeros(len(wanted), dtype=np.int64)
    for shard, targets, position in positions:
        lengths[targets] = shard.lengths[position]
    offsets = _offsets(lengths)
    form = shards[0].columns[column]
    out = torch.empty((int(offsets[-1]), *form.shape), dtype=_output_dtype(form.dtype, dtype))
    for shard, targets, position in positions:
        source = _expand_ranges(_offsets(shard.lengths)[position], shard.lengths[position])
        target = _expand_ranges(offsets[targets], lengths[targets])
        block = _take(shard.block(column), source).to(out.dtype)
        out.index_copy_(0, torch.from_numpy(target), block)
    return out, torch.from_numpy(offsets)


def stream_dense(
    shards: Sequence[Shard], column: str, rows: int
) -> Iterator[tuple[RowNumbers, "Tensor"]]:
    """(row numbers, values) of one shard after the other, each row once."""
    for shard, first in _first_occurrences(shards, rows):
        yield row_numbers(shard, rows)[first], _take(shard.block(column), first)


def stream_ragged(
    shards: Sequence[Shard], column: str, rows: int
) -> Iterator[tuple[RowNumbers, RowNumbers, "Tensor"]]:
    """(row numbers, lengths, values) of one shard after the other, each row once."""
    for shard, first in _first_occurrences(shards, rows):
        lengths = shard.lengths[first]
        tokens = _expand_ranges(_offsets(shard.lengths)[first], lengths)
        yield row_numbers(shard, rows)[first], lengths, _take(shard.block(column), tokens)


def _first_occurrences(shards: Sequence[Shard], rows: int) -> Iterator[tuple[Shard, RowNumbers]]:
    """Each shard with the positions of the rows that occur there first."""
    seen = np.zeros(rows, dtype=bool)
    for shard in shards:
        numbers, index = np.unique(row_numbers(shard, rows), return_index=True)
        first = np.sort(index[~seen[numbers]])
        seen[numbers] = True
        if len(first):
            yield shard, first


def _locate_rows(
    shards: Sequence[Shard], wanted: RowNumbers, rows: int
) -> Iterator[tuple[Shard, RowNumbers, RowNumbers]]:
    """For each shard: which of the wanted rows it provides, and their positions in it."""
    owner, position = np.full(rows, -1), np.zeros(rows, dtype=np.int64)
    for number, (shard, first) in enumerate(firsts := list(_first_occurrences(shards, rows))):
        numbers = row_numbers(shard, rows)[first]
        owner[numbers], position[numbers] = number, first
    for number, (shard, _) in enumerate(firsts):
        targets = np.flatnonzero(owner[wanted] == number)
        # In file order: reading is sequential, and a complete block needs no copy.
        targets = targets[np.argsort(position[wanted[targets]], kind="stable")]
        if len(targets):
            yield shard, targets, position[wanted[targets]]


def _take(block: "Tensor", positions: RowNumbers) -> "Tensor":
    """The block's rows at `positions`; the block itself, not copied, if those are all rows."""
    import torch

    if len(positions) == len(block) and (np.diff(positions) == 1).all():
        return block
    return block[torch.from_numpy(positions)]


def _offsets(lengths: RowNumbers) -> RowNumbers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _expand_ranges(starts: RowNumbers, lengths: RowNumbers) -> RowNumbers:
    """Concatenated ranges: for each start the numbers start, start + 1, ..."""
    inside = np.arange(lengths.sum()) - np.repeat(_offsets(lengths)[:-1], lengths)
    return np.asarray(np.repeat(starts, lengths) + inside, dtype=np.int64)


def _output_dtype(stored: str, requested: "Dtype") -> "torch.dtype":
    """The dtype to return: as requested for floats, as stored for integers and None."""
    import torch

    dtype: torch.dtype = getattr(torch, stored)
    if requested is None or not dtype.is_floating_point:
        return dtype
    if isinstance(requested, torch.dtype):
        return requested
    lookup(DTYPES, requested, kind="tensor type")
    requested_dtype: torch.dtype = getattr(torch, requested)
    return requested_dtype
