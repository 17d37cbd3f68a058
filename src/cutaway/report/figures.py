"""Every method's figures, asked for by name or all at once."""

from collections.abc import Callable, Iterator, Mapping

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import CutawayError
from cutaway.core.lookup import lookup
from cutaway.methods.finetune import figures as finetune
from cutaway.methods.graft import figures as graft
from cutaway.methods.inject import figures as inject
from cutaway.methods.nextword import figures as nextword
from cutaway.methods.probe import figures as probe
from cutaway.methods.shortcut import figures as shortcut
from cutaway.report.records import RecordLike, RunOrRuns, single_runs

FIGURES_BY_METHOD: dict[str, Mapping[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]]] = {
    "finetune": finetune.FIGURES,
    "graft": graft.FIGURES,
    "inject": inject.FIGURES,
    "nextword": nextword.FIGURES,
    "probe": probe.FIGURES,
    "shortcut": shortcut.FIGURES,
}


def figure(record: RecordLike, name: str) -> go.Figure:
    """The figure called `name` of one run; UnknownName lists those its method has."""
    table = lookup(FIGURES_BY_METHOD, record.method, kind="method with figures")
    return lookup(table, name, kind=f"{record.method} figure")(record.rows, record)


def try_figures(
    rows: pl.DataFrame, record: RunOrRuns
) -> Iterator[tuple[str, go.Figure | CutawayError]]:
    """Every figure of the method, or the reason why these rows don't give it."""
    method = single_runs(record)[0].method
    for name, draw in FIGURES_BY_METHOD.get(method, {}).items():
        try:
            yield name, draw(rows, record)
        except CutawayError as error:
            yield name, error


def figures(rows: pl.DataFrame, record: RunOrRuns) -> dict[str, go.Figure]:
    """All figures these rows can give, in the order of the method's table."""
    return {
        name: drawn for name, drawn in try_figures(rows, record) if isinstance(drawn, go.Figure)
    }
