"""Table: named columns of equal length that remember which file each row came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cutaway.core.errors import BadData
from cutaway.core.lookup import suggestion

MAX_ROWS_SHOWN = 5


@dataclass(frozen=True)
class Table:
    """Named columns, before it is known which is the text and which is the label."""

    origin: str
    """The file or source, for messages."""
    columns: dict[str, list[Any]]
    starts: tuple[tuple[int, str], ...] = ()
    """The first row of each file, with the file's name: ((0, "train.tsv"), (6920, ...))."""
    notes: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata in the file itself (the probing reference's files have some)."""
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Class names of columns that hold class indices."""
    first_line: bool = False
    """Whether the column names are the first line of a text file, which could also be data."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))

    def locate(self, row: int) -> str:
        """Where a row is in the user's files, counted from 1: `row 3 of test.tsv`."""
        for start, name in reversed(self.starts or ((0, self.origin),)):
            if row >= start:
                return f"row {row - start + 1} of {name}"
        return f"row {row + 1}"

    def column(self, name: str) -> list[Any]:
        """One column; BadData lists the known columns."""
        if name not in self.columns:
            raise BadData(
                f"{self.origin} has no column {name!r}. "
                f"{suggestion(name, self.columns)}{self.list_columns()}"
            )
        return self.columns[name]

    def list_columns(self) -> str:
        """The column names as a sentence: `Its columns: 'a', 'b'.`"""
        shown = ", ".join(repr(truncate(name)) for name in list(self.columns)[:20])
        more = f" and {len(self.columns) - 20} more" if len(self.columns) > 20 else ""
        return f"Its columns: {shown or 'none'}{more}."

    def select(self, rows: Sequence[int], note: str = "") -> "Table":
        """The given rows only, with a note that says why."""
        starts = self.starts or ((0, self.origin),)
        counts = [(sum(row < start for row in rows), name) for start, name in starts]
        return replace(
            self,
            columns={name: [values[i] for i in rows] for name, values in self.columns.items()},
            starts=tuple(counts),
            notes=self.notes + ((note,) if note else ()),
        )


def truncate(text: Any, limit: int = 60) -> str:
    """A text shortened to fit into a message."""
    full = str(text)
    return full if len(full) <= limit else full[: limit - 1] + "…"


def table_from_rows(origin: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table from dicts; a key that is missing in a row is None there."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return Table(origin, {str(key): [row.get(key) for row in rows] for key in keys})


def table_from_records(
    origin: str, header: Sequence[str], records: Sequence[Sequence[str]]
) -> Table:
    """A table from a header and records of its length; BadData for duplicate column names."""
    twice = sorted({name for name in header if list(header).count(name) > 1})
    if twice:
        raise BadData(
            f"{origin} has more than one column called {truncate(twice[0])!r}. "
            "Rename one of them in the header line."
        )
    columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in header]
    return Table(origin, dict(zip(header, columns, strict=True)))


def concat_tables(origin: str, tables: Sequence[Table]) -> Table:
    """Concatenate tables by column name; columns that some tables lack are left out."""
    common = [name for name in tables[0].columns if all(name in t.columns for t in tables)]
    if not common:
        raise BadData(
            f"The files of {origin} share no column. "
            + " ".join(f"{table.origin}: {table.list_columns()}" for table in tables)
        )
    starts, total = [], 0
    for table in tables:
        starts.append((total, table.origin))
        total += len(table)
    left_out = sorted({name for table in tables for name in table.columns} - set(common))
    notes = [note for table in tables for note in table.notes]
    notes += [f"columns not in every file left out: {', '.join(left_out)}"] if left_out else []
    columns = {
        name: [value for table in tables for value in table.columns[name]] for name in common
    }
    return replace(
        tables[0], origin=origin, columns=columns, starts=tuple(starts), notes=tuple(notes)
    )


def describe_rows(table: Table, rows: Sequence[int]) -> str:
    """The first few rows and how many more: `row 3 of a.tsv, row 9 of a.tsv and 4 more`."""
    shown = ", ".join(table.locate(row) for row in rows[:MAX_ROWS_SHOWN])
    more = len(rows) - MAX_ROWS_SHOWN
    return shown + (f" and {more} more" if more > 0 else "")
