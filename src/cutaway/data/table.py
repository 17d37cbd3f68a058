"""Columns of equal length, with a memory of where each row came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cutaway.core.errors import BadData
from cutaway.core.lookup import suggestion

MAX_ROWS_SHOWN = 5


@dataclass(frozen=True)
class Table:
    """Named columns, row by row, before anybody has said which is text and which is label.

    `starts` says which file each stretch of rows came from: ((0, "train.tsv"), (6920, ...)).
    `facts` is what the file says about itself (the probing reference's metadata), and
    `names` the class names of columns that came as numbers with a legend.
    """

    origin: str
    columns: dict[str, list[Any]]
    starts: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows."""
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """`row 3 of test.tsv`: where a person finds this row, counted from 1."""
        for start, name in reversed(self.starts or ((0, self.origin),)):
            if row >= start:
                return f"row {row - start + 1} of {name}"
        return f"row {row + 1}"

    def column(self, name: str) -> list[Any]:
        """One column; BadData lists the columns there are."""
        if name not in self.columns:
            raise BadData(
                f"{self.origin} has no column {name!r}. "
                f"{suggestion(name, self.columns)}{self.listing()}"
            )
        return self.columns[name]

    def listing(self) -> str:
        """`Its columns: 'a', 'b'.`, with long names cut."""
        shown = ", ".join(repr(truncate(name)) for name in list(self.columns)[:20])
        more = f" and {len(self.columns) - 20} more" if len(self.columns) > 20 else ""
        return f"Its columns: {shown or 'none'}{more}."

    def keep(self, rows: Sequence[int], note: str = "") -> "Table":
        """The chosen rows only, with a note that says why."""
        starts = self.starts or ((0, self.origin),)
        counts = [(sum(row < start for row in rows), name) for start, name in starts]
        return replace(
            self,
            columns={name: [values[i] for i in rows] for name, values in self.columns.items()},
            starts=tuple(counts),
            notes=self.notes + ((note,) if note else ()),
        )


def truncate(text: Any, limit: int = 60) -> str:
    """A text cut to a length that fits into a message."""
    said = str(text)
    return said if len(said) <= limit else said[: limit - 1] + "…"


def table_from_rows(origin: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table from objects; a key that some rows lack is None there."""
    keys: dict[str, None] = {}
    for row in rows:
        keys.update(dict.fromkeys(row))
    return Table(origin, {str(key): [row.get(key) for row in rows] for key in keys})


def table_from_records(
    origin: str, header: Sequence[str], records: Sequence[Sequence[str]]
) -> Table:
    """A table from a header and rectangular records; BadData when two columns share a name."""
    twice = sorted({name for name in header if list(header).count(name) > 1})
    if twice:
        raise BadData(
            f"{origin} has more than one column called {truncate(twice[0])!r}. "
            "Rename one of them in the header line."
        )
    columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in header]
    return Table(origin, dict(zip(header, columns, strict=True)))


def concat_tables(origin: str, tables: Sequence[Table]) -> Table:
    """One table under another, matched by column name; columns not in all of them are left out."""
    common = [name for name in tables[0].columns if all(name in t.columns for t in tables)]
    if not common:
        raise BadData(
            f"The files of {origin} share no column. "
            + " ".join(f"{table.origin}: {table.listing()}" for table in tables)
        )
    starts, total = [], 0
    for table in tables:
        starts.append((total, table.origin))
        total += len(table)
    left_out = sorted({name for table in tables for name in table.columns} - set(common))
    notes = [note for table in tables for note in table.notes]
    notes += [f"columns not in every file left out: {', '.join(left_out)}"] if left_out else []
    return Table(
        origin,
        {name: [value for table in tables for value in table.columns[name]] for name in common},
        tuple(starts),
        tuple(notes),
        tables[0].facts,
        tables[0].names,
    )


def describe_rows(table: Table, rows: Sequence[int]) -> str:
    """`row 3 of a.tsv, row 9 of a.tsv and 4 more`: the first few bad rows and their count."""
    said = ", ".join(table.where(row) for row in rows[:MAX_ROWS_SHOWN])
    return said + (f" and {len(rows) - MAX_ROWS_SHOWN} more" if len(rows) > MAX_ROWS_SHOWN else "")
