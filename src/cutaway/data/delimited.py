"""Read tab- and comma-separated text without merging or losing rows silently.

A .tsv is split at tabs and its quotes are ordinary characters, unless the file was evidently
written by a CSV writer: every field that begins with a quote is correctly quoted, and at least
one contains a doubled quote. Both kinds of .tsv are common.
"""

import csv
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cutaway.core.errors import BadData
from cutaway.data.table import Table, table_from_records, truncate

Records = list[list[str]]


def read_tsv(origin: str, text: str) -> Table:
    """Read tab-separated text."""
    lines, blank = _lines(text)
    records = [line.split("\t") for line in lines]
    width = len(records[0]) if records else 0
    ragged = any(len(record) != width for record in records)
    if is_csv_quoted(records) or (ragged and '"' in text):
        quoted = _read_quoted(origin, text, "\t", forgiving=True)
        if quoted is not None:
            return _table(origin, *quoted, "its quotes are CSV quotes and were removed")
    return _table(origin, records, blank)


def read_csv(origin: str, text: str) -> Table:
    """Read comma-separated text; `;` or tab if the header has those and no comma."""
    header = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = next((d for d in ",;\t" if d in header), ",")
    quoted = _read_quoted(origin, text, delimiter)
    assert quoted is not None  # without `forgiving` it raises instead
    note = "" if delimiter == "," else f"fields are separated by {delimiter!r}, not by commas"
    return _table(origin, *quoted, note)


def without_header(table: Table, names: tuple[str, ...]) -> Table:
    """The table of a file without a header line: its first line becomes the first row."""
    records = [list(table.columns), *zip(*table.columns.values(), strict=True)]
    return table_from_records(table.origin, names, [list(map(str, record)) for record in records])


def _lines(text: str) -> tuple[list[str], int]:
    """The non-blank lines, and the number of blank lines that were left out."""
    # str.splitlines would also split at U+2028 and at form feeds.
    body = text.replace("\r\n", "\n")
    body = body if "\n" in body else body.replace("\r", "\n")
    lines = body.rstrip("\n").split("\n")
    # A line of tabs is a row of empty fields, which is reported later.
    full = [line for line in lines if line.strip(" ")]
    return full, len(lines) - len(full) if full else 0


def is_csv_quoted(records: Records) -> bool:
    """Whether a CSV writer wrote these fields: correct quotes, and at least one doubled quote."""
    quoted = [field for record in records for field in record if field.startswith('"')]
    return any('""' in field[1:-1] for field in quoted) and all(map(_well_quoted, quoted))


def _well_quoted(field: str) -> bool:
    inner = field[1:-1]
    return len(field) > 1 and field.endswith('"') and '"' not in inner.replace('""', "")


def _read_quoted(
    origin: str, text: str, delimiter: str, *, forgiving: bool = False
) -> tuple[Records, int] | None:
    """The records by CSV rules, and the number of blank lines; None if forgiving and invalid."""
    with _no_field_limit():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            records = list(reader)
        except csv.Error as error:
            if forgiving:
                return None
            raise BadData(
                f"{origin}, line {reader.line_num}: broken CSV quoting ({error}). "
                'Close the quote, and double the quotes inside a quoted field: "".'
            ) from None
    full = [record for record in records if record]
    if forgiving and any(len(record) != len(full[0]) for record in full):
        return None
    return full, sum(not record for record in records)


@contextmanager
def _no_field_limit() -> Iterator[None]:
    """Lift the csv module's limit on the field size inside the block."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _table(origin: str, records: Records, blank: int, note: str = "") -> Table:
    """The records as a table; BadData names the first record of another length."""
    if not records:
        raise BadData(f"{origin} has no rows: it needs a header line and at least one row.")
    header = [name.strip() for name in records[0]]
    for number, record in enumerate(records[1:], start=1):
        if len(record) != len(header):
            names = ", ".join(repr(truncate(name, 30)) for name in header[:8])
            raise BadData(
                f"{origin}, row {number}: {len(record)} fields, but the header names "
                f"{len(header)} ({names}). The row begins with {truncate(record[0], 30)!r}. Give "
                "every row one field per column, or fix the header."
            )
    table = table_from_records(origin, header, records[1:])
    notes = [f"{origin}: {note}"] if note else []
    notes += [f"{origin}: {blank} blank lines left out"] if blank else []
    return replace(table, notes=tuple(notes), first_line=True)
