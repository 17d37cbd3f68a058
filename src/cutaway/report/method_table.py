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


class Grid(NamedTuple):
    """A table with a title, such as one metric by layer and kind of map."""

    title: str
    table: pl.DataFrame


def pivot_grid(
    title: str, rows: pl.DataFrame, *, down: str, across: str, value: str = "value"
) -> list[Grid]:
    """One line per value of `down`, one column per value of `across`; no grid without rows."""
    if rows.is_empty():
        return []
    lines = rows.pivot(on=across, index=down, values=value, aggregate_function="first")
    return [Grid(title, lines.sort(down) if lines.schema[down].is_numeric() else lines)]


@dataclass(frozen=True)
class MethodTable:
    """How the rows of a method become tables; every entry is optional."""

    ranking: Callable[[pl.DataFrame, RunOrRuns, int], pl.DataFrame] | None = None
    """The first cells and the baselines: rows, record, number of lines."""
    highlights: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """What to read first, for methods without a ranking."""
    paper: Callable[..., pl.DataFrame] | None = None
    """The table of the method's paper: rows, `numbers` (no text), `beside` (all chosen runs)."""
    summary: Callable[[pl.DataFrame], pl.DataFrame] = summarize_cells
    """One line per cell and metric."""
    key_numbers: Callable[[pl.DataFrame, RecordLike], list[KeyNumber]] | None = None
    """The numbers at the top of a run's section in the report."""
    grids: Callable[[pl.DataFrame, RecordLike], list[Grid]] | None = None
    """A finished run on a terminal, where two coordinates make a grid; may give none."""
    complete: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Adds the columns that imported rows lack."""

    def read_first(self, rows: pl.DataFrame, record: RecordLike, most: int = 12) -> pl.DataFrame:
        """The lines to read first: the ranking, else the highlights, else the first cells."""
        if self.ranking is not None:
            return self.ranking(rows, record, most)
        if self.highlights is not None and (lines := self.highlights(rows)).height:
            return lines
        return self.summary(rows).head(2 * most)

    def terminal_grids(self, rows: pl.DataFrame, record: RecordLike) -> list[Grid]:
        """What a terminal shows: the method's grids, else the lines to read first."""
        grids = self.grids(rows, record) if self.grids is not None else []
        return grids or [Grid("", self.read_first(rows, record, most=8))]


def table_of(method: str) -> MethodTable:
    """The tables of a method; only a summary for a method that isn't in the catalog."""
    if method not in methods():
        return MethodTable()
    found: MethodTable = method_module(method, "table").TABLE
    return found
