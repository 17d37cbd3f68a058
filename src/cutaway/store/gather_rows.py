"""Rows put back in order, out of shards that hold them in any order."""

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
    """The shard's row numbers; Corrupt when they can't be rows of this shelf."""
    numbers = shard.rows
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < rows:
        raise Corrupt(f"{str(shard.path)!r} has rows beyond the shelf's {rows}.")
    return numbers


def gather_dense(
    shards: Sequence[Shard], column: str, wanted: RowNumbers, rows: int, dtype: "Dtype"
) -> "Tensor":
    """(n, ...) values of the wanted rows, in their order."""
    import torch

    form = shards[0].columns[column]
    out = torch.empty((len(wanted), *form.shape), dtype=_output_dtype(form.dtype, dtype))
    for shard, there, place in _locate_rows(shards, wanted, rows):
        block = _take(shard.block(column), place).to(out.dtype)
        out.index_copy_(0, torch.from_numpy(there), block)
    return out


def gather_ragged(
    shards: Sequence[Shard], column: str, wanted: RowNumbers, rows: int, dtype: "Dtype"
) -> tuple["Tensor", "Tensor"]:
    """Values of the wanted rows one after the other, and where each begins."""
    import torch

    places = list(_locate_rows(shards, wanted, rows))
    lengths = np.zeros(len(wanted), dtype=np.int64)
    for shard, there, place in places:
        lengths[there] = shard.lengths[place]
    offsets = _offsets(lengths)
    form = shards[0].columns[column]
    out = torch.empty((int(offsets[-1]), *form.shape), dtype=_output_dtype(form.dtype, dtype))
    for shard, there, place in places:
        source = _expand_ranges(_offsets(shard.lengths)[place], shard.lengths[place])
        target = _expand_ranges(offsets[there], lengths[there])
        block = _take(shard.block(column), source).to(out.dtype)
        out.index_copy_(0, torch.from_numpy(target), block)
    return out, torch.from_numpy(offsets)


def stream_dense(
    shards: Sequence[Shard], column: str, rows: int
) -> Iterator[tuple[RowNumbers, "Tensor"]]:
    """(row numbers, values) of one shard after the other, each row once."""
    for shard, fresh in _first_occurrences(shards, rows):
        yield row_numbers(shard, rows)[fresh], _take(shard.block(column), fresh)


def stream_ragged(
    shards: Sequence[Shard], column: str, rows: int
) -> Iterator[tuple[RowNumbers, RowNumbers, "Tensor"]]:
    """(row numbers, lengths, values) of one shard after the other, each row once."""
    for shard, fresh in _first_occurrences(shards, rows):
        lengths = shard.lengths[fresh]
        tokens = _expand_ranges(_offsets(shard.lengths)[fresh], lengths)
        yield row_numbers(shard, rows)[fresh], lengths, _take(shard.block(column), tokens)


def _first_occurrences(shards: Sequence[Shard], rows: int) -> Iterator[tuple[Shard, RowNumbers]]:
    """Each shard with the places of the rows that no earlier shard (or place) had."""
    seen = np.zeros(rows, dtype=bool)
    for shard in shards:
        numbers, first = np.unique(row_numbers(shard, rows), return_index=True)
        fresh = np.sort(first[~seen[numbers]])
        seen[numbers] = True
        if len(fresh):
            yield shard, fresh


def _locate_rows(
    shards: Sequence[Shard], wanted: RowNumbers, rows: int
) -> Iterator[tuple[Shard, RowNumbers, RowNumbers]]:
    """For each shard: which of the wanted rows it gives, and at which of its places."""
    owner, place = np.full(rows, -1), np.zeros(rows, dtype=np.int64)
    for number, (shard, fresh) in enumerate(firsts := list(_first_occurrences(shards, rows))):
        held = row_numbers(shard, rows)[fresh]
        owner[held], place[held] = number, fresh
    for number, (shard, _) in enumerate(firsts):
        there = np.flatnonzero(owner[wanted] == number)
        # In the file's order: it is read from front to back, and a whole block needs no copy.
        there = there[np.argsort(place[wanted[there]], kind="stable")]
        if len(there):
            yield shard, there, place[wanted[there]]


def _take(block: "Tensor", places: RowNumbers) -> "Tensor":
    """The block's rows at `places`; the block itself, uncopied, when those are all of them."""
    import torch

    if len(places) == len(block) and (np.diff(places) == 1).all():
        return block
    return block[torch.from_numpy(places)]


def _offsets(lengths: RowNumbers) -> RowNumbers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _expand_ranges(starts: RowNumbers, lengths: RowNumbers) -> RowNumbers:
    """start, start + 1, ... for each start, `length` long, one after the other."""
    inside = np.arange(lengths.sum()) - np.repeat(_offsets(lengths)[:-1], lengths)
    return np.asarray(np.repeat(starts, lengths) + inside, dtype=np.int64)


def _output_dtype(stored: str, asked: "Dtype") -> "torch.dtype":
    """The type to give: floats as asked, whole numbers and None as stored."""
    import torch

    kept: torch.dtype = getattr(torch, stored)
    if asked is None or not kept.is_floating_point:
        return kept
    if isinstance(asked, torch.dtype):
        return asked
    lookup(DTYPES, asked, kind="tensor type")
    given: torch.dtype = getattr(torch, asked)
    return given
