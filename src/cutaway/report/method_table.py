"""The tables a method lays out for its own rows; a method's `table` module has them as `TABLE`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from cutaway.catalog import method_module, methods
from cutaway.report.records import RecordLike, RunOrRuns
from cutaway.report.summary import summarize_cells


class KeyNumber(NamedTuple):
    """One number at the top of a run's section in the report."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class MethodTable:
    """How the rows of a method become tables; every entry is optional."""

    ranking: Callable[[pl.DataFrame, RunOrRuns, int], pl.DataFrame] | None = None
    """The best cells and the baselines, best first: rows, record, number of lines."""
    highlights: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """What to read first, for methods without a ranking."""
    paper: Callable[..., pl.DataFrame] | None = None
    """The table of the method's paper: rows, `numbers` (no text), `beside` (all chosen runs)."""
    summary: Callable[[pl.DataFrame], pl.DataFrame] = summarize_cells
    """One line per cell and metric."""
    key_numbers: Callable[[pl.DataFrame, RecordLike], list[KeyNumber]] | None = None
    """The numbers at the top of a run's section in the report."""
    complete: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Adds the columns that imported rows lack."""

    def read_first(self, rows: pl.DataFrame, record: RecordLike, most: int = 12) -> pl.DataFrame:
        """The lines to read first: the ranking, else the highlights, else the first cells."""
        if self.ranking is not None:
            return self.ranking(rows, record, most)
        if self.highlights is not None and (lines := self.highlights(rows)).height:
            return lines
        return self.summary(rows).head(2 * most)


def table_of(method: str) -> MethodTable:
    """The tables of a method; only a summary for a method that isn't in the catalog."""
    if method not in methods():
        return MethodTable()
    found: MethodTable = method_module(method, "table").TABLE
    return found
