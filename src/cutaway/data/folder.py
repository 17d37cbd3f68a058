"""Read a folder of train, dev and test files as one table with parts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import PARTS
from cutaway.data.files import READERS, read_table
from cutaway.data.part_names import PART_BY_SPELLING, part_from_name
from cutaway.data.table import Table, concat_tables

TableTransform = Callable[[Table], Table]


def read_folder(
    folder: Path,
    part_sources: Mapping[str, str] | None = None,
    transform: TableTransform = lambda table: table,
) -> tuple[Table, NDArray[np.str_] | None]:
    """The rows of a folder's files, and their parts; no parts if it has a single file.

    `part_sources` maps a part to the file it is read from: {"test": "dev"} reads the test part
    from the dev file if there is one, leaves out the test file and notes that. `transform` is
    applied to each file's table.
    """
    files = part_files(folder)
    if not files:
        return transform(_read_single_file(folder)), None
    chosen = _files_by_part(files, part_sources or {})
    tables = [transform(read_table(path)) for path in chosen.values()]
    for table in tables:
        if len(table) == 0:
            raise BadData(f"{folder.name}/{table.origin} has no rows: it needs at least one.")
    unread = set(files.values()) - set(chosen.values())
    notes = tuple(f"{path.name} is not part of this task and was left out" for path in unread)
    table = concat_tables(folder.name, tables)
    parts = np.repeat(np.array(list(chosen)), [len(table) for table in tables])
    return replace(table, notes=table.notes + notes), parts


def _files_by_part(files: Mapping[str, Path], sources: Mapping[str, str]) -> dict[str, Path]:
    """The file to read for each part."""
    moved = {p: files[source] for p, source in sources.items() if source != p and source in files}
    others = {part: path for part, path in files.items() if path not in moved.values()}
    both = {**others, **moved}
    return {part: both[part] for part in PARTS if part in both}


def part_files(folder: Path) -> dict[str, Path]:
    """The file of each part, by names like train.tsv, valid.jsonl or test_2k.csv."""
    files, chosen = _readable(folder), dict[str, Path]()
    for part in PARTS:
        exact = [path for path in files if PART_BY_SPELLING.get(path.stem.lower()) == part]
        candidates = exact or [path for path in files if part_from_name(path.stem) == part]
        if len(candidates) > 1:
            names = ", ".join(path.name for path in candidates)
            raise BadData(
                f"{folder.name!r} has several files for the part {part!r}: {names}. "
                "Keep one of them in the folder."
            )
        if candidates:
            chosen[part] = candidates[0]
    return chosen


def _readable(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS)


def _read_single_file(folder: Path) -> Table:
    files = _readable(folder)
    if len(files) == 1:
        return read_table(files[0])
    names = ", ".join(path.name for path in files[:8]) or "no file with a known ending"
    raise BadData(
        f"{folder.name!r} holds {names}: expected train, dev and test files, or a single file, "
        f"ending in {', '.join(READERS)}. Name the file itself, or rename them."
    )
