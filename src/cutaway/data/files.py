"""Read a file as a table; there is one reader per file type."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psutil import virtual_memory

from cutaway.core.errors import BadData, Missing
from cutaway.core.parquet import check_parquet_size
from cutaway.data import delimited
from cutaway.data.json_layouts import table_from_json
from cutaway.data.table import Table, table_from_rows, truncate


def path_kind(path: Path) -> str:
    """`file`, `folder`, or an empty string if the path doesn't exist or is invalid."""
    try:
        return "folder" if path.is_dir() else "file" if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def read_table(path: Path) -> Table:
    """Read the table in a file with the reader for its suffix."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise BadData(
            f"{path.name} ends in {path.suffix!r}. Known endings: {', '.join(READERS)}. "
            "Save the data in one of these."
        )
    try:
        return reader(path)
    except FileNotFoundError:
        raise Missing(f"No file at {str(path)!r}. Check the path.") from None
    except OSError as error:
        raise Missing(f"{str(path)!r} can't be read: {error.strerror or error}.") from None


MAX_LINE_BYTES = 2**24
"""No text is that long; such a line is binary data, or a file without line breaks."""


def read_text(path: Path, *, lines: bool = True) -> str:
    """Read a UTF-8 file; BadData names the first invalid byte, and a line that is too long."""
    if lines:
        _check_line_lengths(path)
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadData(
            f"{path.name} is not valid UTF-8 at byte {error.start} (line {line}): "
            f"{data[error.start : error.start + 4]!r}. Save it as UTF-8, for instance with: "
            f"iconv -f latin1 -t utf-8 {path.name}"
        ) from None
    zero = text.find("\0")
    if zero >= 0:
        raise BadData(
            f"{path.name} holds a NUL character on line {text.count(chr(10), 0, zero) + 1}: it is "
            "binary, or UTF-16. Save it as UTF-8 text, or remove the NULs with: tr -d '\\000'"
        )
    return text


def _check_line_lengths(path: Path) -> None:
    """BadData for a line of more than `MAX_LINE_BYTES`, before the file is read as a whole."""
    length, number = 0, 1
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            first, *others = block.split(b"\n")
            for piece in (length + len(first), *map(len, others)):
                length = piece
                if length > MAX_LINE_BYTES:
                    raise BadData(
                        f"{path.name}, line {number} is longer than {MAX_LINE_BYTES:,} bytes. "
                        "Split long texts into several lines, one text each."
                    )
                number += 1
            number -= 1


def _tsv(path: Path) -> Table:
    return delimited.read_tsv(path.name, read_text(path))


def _csv(path: Path) -> Table:
    return delimited.read_csv(path.name, read_text(path))


def _txt(path: Path) -> Table:
    """One text per line; blank lines are ignored."""
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return Table(path.name, {"text": [line.strip() for line in lines if line.strip()]})


def _json(path: Path) -> Table:
    return table_from_json(path.name, _parse(path.name, read_text(path, lines=False)))


def _jsonl(path: Path) -> Table:
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            row = _parse(f"{path.name}, line {number}", line)
            if not isinstance(row, dict):
                raise BadData(
                    f"{path.name}, line {number}: {truncate(line, 40)!r} is not an object. "
                    'Each line needs one, like {"text": "...", "label": 0}.'
                )
            rows.append(row)
    return table_from_rows(path.name, rows)


def _parse(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadData(
            f"{where}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}. "
            "Is the file truncated?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadData(f"{where}: JSON that can't be read: {truncate(error)}.") from None


def _parquet(path: Path) -> Table:
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(path)
        check_parquet_size(path.name, metadata, virtual_memory().available)
        _check_unique_columns(path.name, metadata.schema.to_arrow_schema().names)
        frame = pyarrow.parquet.read_table(path)
        columns = {name: frame[name].to_pylist() for name in frame.column_names}
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise BadData(
            f"{path.name} can't be read as parquet: {truncate(error, 120)}. Is the file truncated?"
        ) from None
    return Table(path.name, columns)


def _check_unique_columns(file: str, names: list[str]) -> None:
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise BadData(
                f"{file} has {count} columns {truncate(name)!r}. Column names must be unique: "
                "rename or drop one."
            )


READERS: dict[str, Callable[[Path], Table]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".txt": _txt,
}
