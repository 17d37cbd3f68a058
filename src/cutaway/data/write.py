"""Write text sets as files that `load_text_set` reads back with the same rows and labels."""

import csv
import errno
import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.core.errors import BadData, BadSpec, NoRoom
from cutaway.core.textset import PARTS, TextSet
from cutaway.data.arithmetic_read import ARITHMETIC_COLUMNS
from cutaway.data.delimited import is_csv_quoted
from cutaway.home import expand_path

ColumnValues = dict[str, list[Any]]


def write_text_set(textset: TextSet, out: str | Path) -> list[Path]:
    """Write to the file `out`, or to one file per part in the folder `out`; returns the paths.

    A folder gets train.jsonl, dev.jsonl and test.jsonl, or all.jsonl for a set without parts.
    Files are written atomically.
    """
    path = expand_path(out)
    if path.suffix.lower() in WRITERS:
        return [_write_whole(path, WRITERS[path.suffix.lower()](path.name, to_columns(textset)))]
    if path.suffix and not path.is_dir():
        raise BadSpec(
            f"{path.name} ends in {path.suffix!r}. Known endings: {', '.join(WRITERS)}; "
            "a name without one creates a folder."
        )
    written = []
    for name, rows in _by_part(textset).items():
        columns = to_columns(rows)
        columns.pop("split", None)
        written.append(_write_whole(path / f"{name}.jsonl", _jsonl(name, columns)))
    return written


def to_columns(textset: TextSet) -> ColumnValues:
    """The columns of a text set by name; classes as index and name."""
    if textset.meta.get("format") == "plain" and "op" in textset.meta:
        columns = {name: _plain(textset.meta[name]) for name in ARITHMETIC_COLUMNS}
    else:
        columns = {"text": list(textset.texts)}
        columns |= {"pair": list(textset.pairs)} if textset.pairs is not None else {}
        columns |= {"answer": list(textset.answers)} if textset.answers is not None else {}
        columns |= _label_columns(textset)
    if textset.parts is not None:
        columns["split"] = _plain(textset.parts)
    return columns


def _label_columns(textset: TextSet) -> ColumnValues:
    if textset.labels is None:
        return {}
    labels = _plain(textset.labels)
    if textset.task == "multilabel":
        rows = [zip(textset.classes, row, strict=True) for row in labels]
        return {"label": [[name for name, mark in row if mark] for row in rows]}
    if textset.task in ("binary", "multiclass") and textset.classes:
        return {"label": labels, "label_text": [textset.classes[i] for i in labels]}
    return {"label": labels}


def _plain(values: Any) -> list[Any]:
    return list(np.asarray(values).tolist())


def _by_part(textset: TextSet) -> dict[str, TextSet]:
    if textset.parts is None:
        return {"all": textset}
    there = [part for part in PARTS if part in set(textset.parts.tolist())]
    return {part: textset.part(part) for part in there}


def _rows(columns: ColumnValues) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _jsonl(name: str, columns: ColumnValues) -> bytes:
    lines = (json.dumps(row, ensure_ascii=False) for row in _rows(columns))
    return "".join(line + "\n" for line in lines).encode()


def _json(name: str, columns: ColumnValues) -> bytes:
    return json.dumps(_rows(columns), ensure_ascii=False, indent=1).encode()


def _text_records(name: str, columns: ColumnValues) -> list[list[str]]:
    if any(isinstance(value, list) for values in columns.values() for value in values):
        raise BadData(f"{name}: this file type can't hold lists of labels. Write .jsonl.")
    cells = ([str(value) for value in row] for row in zip(*columns.values(), strict=True))
    return [list(columns), *cells]


def _tsv(name: str, columns: ColumnValues) -> bytes:
    records = _text_records(name, columns)
    broken = any("\t" in cell or "\n" in cell or "\r" in cell for row in records for cell in row)
    if broken or is_csv_quoted(records):
        raise BadData(
            f"{name}: a text has a tab, a line end or quotes that .tsv can't hold. Write .jsonl."
        )
    return "".join("\t".join(row) + "\n" for row in records).encode()


def _csv(name: str, columns: ColumnValues) -> bytes:
    page = io.StringIO(newline="")
    csv.writer(page, lineterminator="\n").writerows(_text_records(name, columns))
    return page.getvalue().encode()


def _txt(name: str, columns: ColumnValues) -> bytes:
    if list(columns) != ["text"]:
        raise BadData(
            f"{name}: .txt holds texts only, and this set has {', '.join(columns)}. Write .tsv "
            "or .jsonl."
        )
    texts = columns["text"]
    if any("\n" in text or "\r" in text for text in texts):
        raise BadData(f"{name}: a text has more than one line. Write .jsonl.")
    return "".join(text + "\n" for text in texts).encode()


def _parquet(name: str, columns: ColumnValues) -> bytes:
    import polars

    page = io.BytesIO()
    polars.DataFrame(columns).write_parquet(page)
    return page.getvalue()


WRITERS: dict[str, Callable[[str, ColumnValues], bytes]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".txt": _txt,
}


def _write_whole(path: Path, data: bytes) -> Path:
    """Write a file atomically: to a temporary file, synced, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as page:
            page.write(data)
            page.flush()
            os.fsync(page.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some disk space." if full else "Choose another path with --out."
        raise (NoRoom if full else BadSpec)(
            f"{str(path)!r} can't be written: {error.strerror or error}. {remedy}"
        ) from None
    return path
