"""Tables of several runs as one: columns by name, with method and address first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cutaway.store.records import Record

if TYPE_CHECKING:
    import polars as pl


def rows_of_runs(records: Sequence[Record]) -> "pl.DataFrame":
    """The rows of all runs, concatenated by column name, with method and address first."""
    return concat_tables([(record, record.rows) for record in records])


def concat_tables(parts: "Sequence[tuple[Record, pl.DataFrame]]") -> "pl.DataFrame":
    """A table of each run, concatenated by column name, with method and address first."""
    import polars as pl

    if not parts:
        return pl.DataFrame(schema={"method": pl.String, "address": pl.String})
    mixed = _mixed_type_columns([frame for _, frame in parts])
    return pl.concat(
        [_with_run_columns(record, frame, mixed) for record, frame in parts],
        how="diagonal_relaxed",
    )


def _with_run_columns(record: Record, frame: "pl.DataFrame", mixed: set[str]) -> "pl.DataFrame":
    """A run's table with its method and address; columns of mixed type become text."""
    import polars as pl

    names = {"method": valid_text(record.method), "address": valid_text(record.address)}
    front = [pl.Series(n, [v]).new_from_index(0, len(frame)) for n, v in names.items()]
    columns = frame.get_columns()
    return pl.DataFrame(
        front + [c.cast(pl.String) if c.name in mixed else c for c in columns], strict=False
    )


def _mixed_type_columns(frames: Sequence["pl.DataFrame"]) -> set[str]:
    """Columns that are numbers in one run and something else in another."""
    import polars as pl

    # Most frames have the same columns: each schema is looked at once.
    schemas = {tuple(frame.schema.items()) for frame in frames}
    return mixed_types(
        [
            {n: "number" if t.is_numeric() else str(t) for n, t in schema if t != pl.Null}
            for schema in schemas
        ]
    )


def mixed_types(tables: Sequence[Mapping[str, str]]) -> set[str]:
    """Columns that are of one kind in a table and of another kind in another table."""
    kinds: dict[str, set[str]] = {}
    for table in tables:
        for name, kind in table.items():
            kinds.setdefault(name, set()).add(kind)
    return {name for name, found in kinds.items() if len(found) > 1}


def valid_text(value: str) -> str:
    """The text with `?` for lone surrogates, which file names may have but tables can't."""
    return value.encode("utf-8", "replace").decode()
