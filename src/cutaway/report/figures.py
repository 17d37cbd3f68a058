"""The figures of every method, by name or all at once."""

from collections.abc import Callable, Iterator, Mapping

import plotly.graph_objects as go
import polars as pl

from cutaway.catalog import method_module, methods
from cutaway.core.errors import CutawayError
from cutaway.core.lookup import lookup
from cutaway.report.records import RecordLike, RunOrRuns, single_runs

DrawFigure = Callable[[pl.DataFrame, RunOrRuns], go.Figure]


def figures_of(method: str) -> Mapping[str, DrawFigure]:
    """The figures of a method by name; none for a method that isn't in the catalog."""
    found: Mapping[str, DrawFigure] = (
        method_module(method, "figures").FIGURES if method in methods() else {}
    )
    return found


def figure(record: RecordLike, name: str) -> go.Figure:
    """The figure called `name` of one run; UnknownName lists those its method has."""
    lookup(dict.fromkeys(methods()), record.method, kind="method with figures")
    return lookup(figures_of(record.method), name, kind=f"{record.method} figure")(
        record.rows, record
    )


def try_figures(
    rows: pl.DataFrame, record: RunOrRuns
) -> Iterator[tuple[str, go.Figure | CutawayError]]:
    """Every figure of the method, or the error that explains why it can't be drawn."""
    method = single_runs(record)[0].method
    for name, draw in figures_of(method).items():
        try:
            yield name, draw(rows, record)
        except CutawayError as error:
            yield name, error


def figures(rows: pl.DataFrame, record: RunOrRuns) -> dict[str, go.Figure]:
    """All figures that can be drawn from these rows, in the method's order."""
    return {
        name: drawn for name, drawn in try_figures(rows, record) if isinstance(drawn, go.Figure)
    }
