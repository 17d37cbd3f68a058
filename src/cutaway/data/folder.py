"""A folder of train, dev and test files becomes one table with parts."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import PARTS
from cutaway.data.files import READERS, read_table
from cutaway.data.partnames import PART_OF, SPELLINGS
from cutaway.data.table import Table, stack


def read_folder(folder: Path) -> tuple[Table, NDArray[np.str_] | None]:
    """The rows of a folder's files, and their parts; no parts where it holds a single file."""
    files = part_files(folder)
    if not files:
        return _single(folder), None
    tables = [read_table(path) for path in files.values()]
    sizes = [len(table) for table in tables]
    for table, size in zip(tables, sizes, strict=True):
        if size == 0:
            raise BadData(f"{folder.name}/{table.origin} has no rows: it needs at least one.")
    return stack(folder.name, tables), np.repeat(np.array(list(files)), sizes)


def part_files(folder: Path) -> dict[str, Path]:
    """The file of each part, by names like train.tsv, valid.jsonl or test_2k.csv."""
    found: dict[str, Path] = {}
    for part in PARTS:
        exact = [path for path in _readable(folder) if PART_OF.get(path.stem.lower()) == part]
        near = [path for path in _readable(folder) if _begins(path.stem, part)]
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


def _begins(stem: str, part: str) -> bool:
    return re.split(r"[_\-. ]", stem.lower())[0] in SPELLINGS[part]


def _readable(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS)


def _single(folder: Path) -> Table:
    files = _readable(folder)
    if len(files) == 1:
        return read_table(files[0])
    held = ", ".join(path.name for path in files[:8]) or "no file with a known ending"
    raise BadData(
        f"{folder.name!r} holds {held}: expected train, dev and test files, or a single file, "
        f"ending in {', '.join(READERS)}. Name the file itself, or rename them."
    )
