"""Lines of a run with its method and address first."""

from typing import TYPE_CHECKING

from cutaway.store.records import Record

if TYPE_CHECKING:
    import polars as pl


RUN_COLUMNS = ("method", "address")


def with_run_columns(record: Record, frame: "pl.DataFrame") -> "pl.DataFrame":
    """A run's table with its method and address."""
    import polars as pl

    names = {name: valid_text(getattr(record, name)) for name in RUN_COLUMNS}
    front = [pl.Series(n, [v]).new_from_index(0, len(frame)) for n, v in names.items()]
    return pl.DataFrame(front + frame.get_columns())


def valid_text(value: str) -> str:
    """The text with `?` for lone surrogates, which file names may have but tables can't."""
    return value.encode("utf-8", "replace").decode()
