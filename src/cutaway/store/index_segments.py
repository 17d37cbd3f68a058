"""The files of one table of an index: `<table>.json` and segments, parquet files that it names."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.store import index_files
from cutaway.store.run_tables import RUN_COLUMNS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow

FORMAT = 1
SEGMENT_BYTES, PENDING_BYTES = 1 << 24, 1 << 25
"""Of a segment before compression, and of all lines that are not written yet."""
SMALL_BYTES = SEGMENT_BYTES // 8
"""A segment with fewer bytes is joined with new lines of the same columns."""
GROUP_ROWS = 1 << 15
SAVE_SECONDS = 30.0
"""While a large index is being written, what is done is saved so often."""


NO_LINES, NOT_STORED = "", "-"
"""In place of a segment: a run without lines; a run that must be read each time."""


@dataclass(frozen=True)
class Entry:
    """A run in an index: its segment, and the stamp of the files it was computed from."""

    segment: str
    created: str
    stamp: list[int] | None


@dataclass
class Index:
    """Runs by key (`<method>/<address>`), and the bytes of each segment before compression."""

    runs: dict[str, Entry] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """The lines of many runs with the same columns, verified."""

    name: str
    bytes: int
    data: memoryview
    runs: frozenset[str]
    """The keys of all runs in it."""

    def buffer(self) -> "pyarrow.BufferReader":
        """The parquet file, mapped into memory."""
        import pyarrow

        return pyarrow.BufferReader(pyarrow.py_buffer(self.data))

    @cached_property
    def schema(self) -> "pyarrow.Schema":
        """The columns and their types."""
        from pyarrow import parquet

        return parquet.read_schema(self.buffer())

    def frame(self, runs: Collection[str], columns: Sequence[str] | None = None) -> "pl.DataFrame":
        """The lines of these runs: all columns, or those named and method and address."""
        import polars as pl
        from pyarrow import parquet

        names = None if columns is None else list(dict.fromkeys(("method", "address", *columns)))
        frame = pl.from_arrow(parquet.read_table(self.buffer(), columns=names))
        assert isinstance(frame, pl.DataFrame)
        if self.runs <= set(runs):
            return frame
        keys = frame.select(pl.concat_str("method", "address", separator="/")).to_series()
        return frame.filter(keys.is_in(list(runs)))


def read_index(folder: Path, table: str) -> Index:
    """The index of a table; empty if there is none, or if it is damaged or of another version."""
    data = index_files.read_file(folder / f"{table}.json")
    content = {} if data is None else json.loads(bytes(data))
    if content.get("made_by") != _made_by():
        return Index()
    runs = {key: Entry(*entry) for key, entry in content["runs"].items()}
    return Index(runs, content["segments"])


def read_segments(folder: Path, index: Index) -> dict[str, Segment]:
    """The segments of an index that are intact, by name."""
    runs: dict[str, set[str]] = {}
    for key, entry in index.runs.items():
        runs.setdefault(entry.segment, set()).add(key)
    found = {}
    for name, size in index.segments.items():
        data = index_files.read_file(folder / name)
        if data is not None:
            found[name] = Segment(name, size, data, frozenset(runs[name]))
    return found


def _made_by() -> list[Any]:
    return [FORMAT, index_files.code_digest()]


@cache
def _plain_types() -> frozenset[Any]:
    import polars as pl

    numbers = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
    return frozenset((*numbers, pl.Float32, pl.Float64, pl.String, pl.Boolean, pl.Null))


@dataclass
class _Group:
    """Lines with the same columns that are not written yet."""

    runs: dict[str, Entry] = field(default_factory=dict)
    frames: "list[pl.DataFrame]" = field(default_factory=list)
    bytes: int = 0


class IndexWriter:
    """Collects lines of runs and writes them; what can't be written is left out."""

    def __init__(self, folder: Path, table: str, replaced: Collection[str] = ()) -> None:
        self.folder, self.table, self.index = folder, table, Index()
        self._replaced = set(replaced)
        self._groups: dict[Any, _Group] = {}
        self._saved = time.monotonic()

    def leave_out(self, run: str, stamp: list[int] | None) -> None:
        """Remember a run that must be read each time: trying to store it again is no use."""
        self.index.runs[run] = Entry(NOT_STORED, "", stamp)

    def keep(self, segment: Segment, runs: Mapping[str, Entry]) -> None:
        """A segment that stays as it is, with all of its runs."""
        self.index.runs.update(runs)
        self.index.segments[segment.name] = segment.bytes

    def add_lines(self, runs: Mapping[str, Entry], lines: "pl.DataFrame") -> None:
        """The lines of one run, or of several; columns of unusual types are not stored."""
        if any(dtype.base_type() not in _plain_types() for dtype in lines.schema.values()):
            self._mark(runs, NOT_STORED)
            return
        if lines.is_empty() and lines.width == len(RUN_COLUMNS):
            self._mark(runs, NO_LINES)
            return
        group = self._groups.setdefault(tuple(lines.schema.items()), _Group())
        group.runs.update(runs)
        group.frames.append(lines)
        group.bytes += int(lines.estimated_size())
        if group.bytes >= SEGMENT_BYTES:
            self._write(group)
        elif sum(one.bytes for one in self._groups.values()) >= PENDING_BYTES:
            self._write(max(self._groups.values(), key=lambda one: one.bytes))
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.finish()

    def finish(self) -> None:
        """Write everything; segments that are no longer in use are removed."""
        for group in list(self._groups.values()):
            self._write(group)
        content = {
            "made_by": _made_by(),
            "segments": self.index.segments,
            "runs": {k: [e.segment, e.created, e.stamp] for k, e in self.index.runs.items()},
        }
        data = json.dumps(content, separators=(",", ":")).encode()
        name = f"{self.table}.json"
        if index_files.write_file(self.folder / name, data):
            used = {name, *self.index.segments}
            index_files.remove_unused(self.folder, self.table, used, self._replaced)
        self._saved = time.monotonic()

    def _mark(self, runs: Mapping[str, Entry], segment: str) -> None:
        for key, entry in runs.items():
            self.index.runs[key] = Entry(segment, entry.created, entry.stamp)

    def _write(self, group: _Group) -> None:
        """Write a group as a segment."""
        if not group.runs:
            return
        name = index_files.new_name(self.table)
        if index_files.write_file(self.folder / name, _parquet(group.frames)):
            self.index.segments[name] = group.bytes
            self._mark(group.runs, name)
        group.runs, group.frames, group.bytes = {}, [], 0


def _parquet(frames: "list[pl.DataFrame]") -> bytes:
    import polars as pl
    from pyarrow import parquet

    table = pl.concat(frames).to_arrow(compat_level=pl.CompatLevel.oldest())
    buffer = BytesIO()
    parquet.write_table(table, buffer, compression="zstd", row_group_size=GROUP_ROWS)
    return buffer.getvalue()
