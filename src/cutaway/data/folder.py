"""A folder of train, dev and test files becomes one table with parts."""

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


def _unchanged(table: Table) -> Table:
    return table


def read_folder(
    folder: Path, wanted: Mapping[str, str] | None = None, mend: TableTransform = _unchanged
) -> tuple[Table, NDArray[np.str_] | None]:
    """The rows of a folder's files, and their parts; no parts where it holds a single file.

    `wanted` says for a part which file it is made of: {"test": "dev"} takes the dev file for
    test where there is one; a test file beside it is then left out, which a note tells. `mend`
    is applied to each table as it comes.
    """
    files = part_files(folder)
    if not files:
        return mend(_read_single_file(folder)), None
    chosen = _files_by_part(files, wanted or {})
    tables = [mend(read_table(path)) for path in chosen.values()]
    for table in tables:
        if len(table) == 0:
            raise BadData(f"{folder.name}/{table.origin} has no rows: it needs at least one.")
    unread = set(files.values()) - set(chosen.values())
    notes = tuple(f"{path.name} is not part of this task and was left out" for path in unread)
    whole = concat_tables(folder.name, tables)
    parts = np.repeat(np.array(list(chosen)), [len(table) for table in tables])
    return replace(whole, notes=whole.notes + notes), parts


def _files_by_part(files: Mapping[str, Path], wanted: Mapping[str, str]) -> dict[str, Path]:
    """The file of each part, with those that were moved to another part."""
    moved = {p: files[source] for p, source in wanted.items() if source != p and source in files}
    kept = {part: path for part, path in files.items() if path not in moved.values()}
    both = {**kept, **moved}
    return {part: both[part] for part in PARTS if part in both}


def part_files(folder: Path) -> dict[str, Path]:
    """The file of each part, by names like train.tsv, valid.jsonl or test_2k.csv."""
    found: dict[str, Path] = {}
    for part in PARTS:
        exact = [
            path for path in _readable(folder) if PART_BY_SPELLING.get(path.stem.lower()) == part
        ]
        near = [path for path in _readable(folder) if part_from_name(path.stem) == part]
        several = exact or near
        if len(several) > 1:
            names = ", ".join(path.name for path in several)
            raise BadData(
                f"{folder.name!r} has several files for the part {part!r}: {names}. "
                "Keep one of them in the folder."
            )
        if several:
            found[part] = several[0]
    return found


def _readable(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS)


def _read_single_file(folder: Path) -> Table:
    files = _readable(folder)
    if len(files) == 1:
        return read_table(files[0])
    held = ", ".join(path.name for path in files[:8]) or "no file with a known ending"
    raise BadData(
        f"{folder.name!r} holds {held}: expected train, dev and test files, or a single file, "
        f"ending in {', '.join(READERS)}. Name the file itself, or rename them."
    )
