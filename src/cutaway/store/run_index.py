"""What is computed from each run, kept in an index, so that tens of thousands of runs are quick.

A `RunTable` says which lines each run has. Their index holds the lines of most runs in a few
parquet files (segments; one for all runs with the same columns, up to some size), and a JSON
file with the segment of each run and the stamps of the files it was computed from.

The files of the runs decide: a run whose stamps differ, that is new, or that changed so recently
that a second change might not show, is read; lines of a run that is gone are left out. The index is
written again when reading such runs would take long (`INDEX_FROM`). Segments are never changed, and
the JSON file is replaced atomically, so that any number of processes may do this at once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.console import Console
from cutaway.core.errors import Corrupt, CutawayError, Missing
from cutaway.store import index_files
from cutaway.store.index_segments import (
    NO_LINES,
    NOT_STORED,
    SMALL_BYTES,
    Entry,
    Index,
    IndexWriter,
    Segment,
    read_index,
    read_segments,
)
from cutaway.store.records import Record, read_record
from cutaway.store.run_places import RunPlace, newest_change, run_places
from cutaway.store.run_tables import valid_text, with_run_columns

if TYPE_CHECKING:
    import polars as pl

INDEX_FROM = 100
"""So many runs that are not in the index, or only there, make it worth writing."""
SETTLED_NS = 2 * 10**9
"""A file that changed less than this ago may change once more without another time."""
PROGRESS_FROM = 1000


@dataclass(frozen=True)
class RunTable:
    """Lines computed from each run."""

    name: str
    files: tuple[str, ...]
    """The files of a run that the lines are computed from."""
    lines: "Callable[[Record], pl.DataFrame]"
    """The lines of a run, without method and address; CutawayError if a file is damaged."""


@dataclass(frozen=True)
class FreshRun:
    """A run that was read because the index doesn't have it as it is now."""

    record: Record
    frame: "pl.DataFrame"
    """Its lines with method and address first."""


@dataclass(frozen=True)
class Gathered:
    """The lines of all runs of a folder: from the index, and of runs that were read."""

    stored: Mapping[str, Entry]
    segments: Sequence[Segment]
    fresh: Mapping[str, FreshRun]
    broken: Sequence[tuple[Path, str]]
    """Folder and reason of runs whose result.json can't be read."""
    damaged: Mapping[str, tuple[Record, CutawayError]]
    """Runs with a damaged table."""

    @cached_property
    def keys(self) -> list[str]:
        """All runs whose result.json can be read, newest first."""
        created = {key: entry.created for key, entry in self.stored.items()}
        created |= {key: run.record.created for key, run in self.fresh.items()}
        created |= {key: record.created for key, (record, _) in self.damaged.items()}
        return sorted(created, key=lambda k: (created[k], k.rpartition("/")[2]), reverse=True)

    def frame(self, columns: Sequence[str]) -> "pl.DataFrame":
        """These columns of tables with one line per run, newest run first."""
        import polars as pl

        place = {key: i for i, key in enumerate(self.keys)}
        frames = [s.frame(self.stored, columns) for s in self.segments]
        frames += [run.frame for run in self.fresh.values()]
        if not frames:
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
        keys = pl.concat_str("method", "address", separator="/")
        every = pl.concat(
            [frame.select(*columns, keys.alias("_key")) for frame in frames], how="diagonal_relaxed"
        )
        order = pl.DataFrame({"_key": list(place), "_place": list(place.values())})
        return every.join(order, on="_key").sort("_place").drop("_key", "_place")


@dataclass
class _Split:
    """The runs of a folder: those that the index has as they are now, and those to read."""

    stored: dict[str, Entry] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    todo: list[RunPlace] = field(default_factory=list)
    changes: int = 0
    """Runs to store or to forget."""


def gather(folder: Path, table: RunTable) -> Gathered:
    """The lines of all runs of a folder; writes the index if much has changed."""
    place = index_files.index_folder(folder)
    split = _split(folder, place, table)
    if split.changes >= INDEX_FROM:
        place = index_files.index_folder(folder, make_key=True)
        if place is not None:
            _save(place, table, split)
            split = _split(folder, place, table)
    fresh, broken, damaged = {}, [], {}
    for run in split.todo:
        try:
            record = read_record(run.path)
        except Missing:
            continue
        except CutawayError as error:
            broken.append((run.path, str(error)))
            continue
        try:
            fresh[run.key] = FreshRun(record, run_lines(record, table))
        except CutawayError as error:
            damaged[run.key] = (record, error)
    return Gathered(split.stored, split.segments, fresh, broken, damaged)


def run_lines(record: Record, table: RunTable) -> "pl.DataFrame":
    """The lines of a run with method and address first."""
    import polars as pl

    lines = table.lines(record)
    try:
        return with_run_columns(record, lines)
    except pl.exceptions.DuplicateError:
        raise Corrupt(
            f"A table of {str(record.path)!r} has a column method or address: not ours."
        ) from None


def _split(folder: Path, place: Path | None, table: RunTable) -> _Split:
    """Which runs the index has as they are now; runs of a segment that can't be read are to do."""
    index = Index() if place is None else read_index(place, table.name)
    found = {} if place is None else read_segments(place, index)
    split = _Split(segments=list(found.values()))
    gone = set(index.runs)
    for run in run_places(folder):
        entry = index.runs.get(run.key)
        same = entry is not None and entry.stamp == run.stamp(table.files)
        gone.discard(run.key)
        if entry is not None and same and (entry.segment in found or entry.segment == NO_LINES):
            split.stored[run.key] = entry
        else:
            split.todo.append(run)
            split.changes += not (entry is not None and same and entry.segment == NOT_STORED)
    split.changes += len(gone)
    return split


def _save(place: Path, table: RunTable, split: _Split) -> None:
    """Write the index anew; segments that are large and have no line too many are kept."""
    writer = IndexWriter(place, table.name, [segment.name for segment in split.segments])
    writer.index.runs |= {k: e for k, e in split.stored.items() if e.segment == NO_LINES}
    for segment in split.segments:
        alive = {key: split.stored[key] for key in segment.runs if key in split.stored}
        if len(alive) == len(segment.runs) and segment.bytes >= SMALL_BYTES:
            writer.keep(segment, alive)
        elif alive:
            writer.add_lines(alive, segment.frame(set(alive)))
    title = f"Indexing {len(split.todo):,} runs ({table.name})"
    console = Console(quiet=len(split.todo) < PROGRESS_FROM)
    with console.progress(title, len(split.todo)) as advance:
        for run in split.todo:
            _add_run(writer, table, run)
            advance()
    writer.finish()


def _add_run(writer: IndexWriter, table: RunTable, run: RunPlace) -> None:
    """Add a run to the index unless it might change unseen, or can't be stored."""
    now, stamp = time.time_ns(), run.stamp(table.files)
    if stamp is not None and newest_change(stamp) > now - SETTLED_NS:
        return
    if stamp is None or valid_text(run.key) != run.key:
        writer.leave_out(run.key, stamp)
        return
    try:
        record = read_record(run.path)
        lines = run_lines(record, table)
    except CutawayError:
        writer.leave_out(run.key, stamp)
        return
    if run.stamp(table.files) == stamp:
        writer.add_lines({run.key: Entry(NO_LINES, record.created, stamp)}, lines)
