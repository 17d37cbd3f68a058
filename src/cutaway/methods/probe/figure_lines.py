"""Lines of probe figures: one per model, pooler and classifier, with interval bands."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.methods.probe.aggregate import (
    chosen_cell_per_group,
    scored_probe_cells,
    varying_columns,
)
from cutaway.report import formats, theme
from cutaway.report.metric_labels import lower_is_better
from cutaway.report.panels import MAX_SERIES

MAX_BANDS = 3


INTERVAL_NOTE = (
    f"bands (for up to {MAX_BANDS} lines) give the 95 % interval of the mean over repeats"
)
POINTER = "Hover over a point to see its interval."


XValues = Callable[[pl.DataFrame], Sequence[float]]


# What travels with each point, for the hover text and the CSV.
POINT_COLUMNS = ("layers", "low", "high", "repeats", "n_train")


@dataclass(frozen=True)
class LineSeries:
    """One line of a figure: its cells and how it is drawn."""

    name: str
    cells: pl.DataFrame
    colour: str
    dash: str


@dataclass(frozen=True)
class LineStyle:
    """Which columns tell lines apart, and the colour and dash of each value."""

    differ: tuple[str, ...]
    hues: Mapping[Any, str]
    dashes: Mapping[tuple[Any, ...], str]


def line_style(table: pl.DataFrame) -> LineStyle:
    """How lines are distinguished in all panels: colour by the first difference, then dashes."""
    found = scored_probe_cells(table)
    differ = tuple(varying_columns(table, ("model", "pool", "classifier")))
    hues = (
        theme.assign_colours(found[differ[0]].unique(maintain_order=True).to_list())
        if differ
        else {}
    )
    rests = found.select(differ[1:]).unique(maintain_order=True).rows() if differ[1:] else [()]
    dashes = {rest: theme.DASHES[i % len(theme.DASHES)] for i, rest in enumerate(rests)}
    return LineStyle(differ, hues, dashes)


def panel_series(
    table: pl.DataFrame, metric: str, look: LineStyle, most: int = MAX_SERIES
) -> tuple[list[LineSeries], int]:
    """The lines of one panel, best of each colour first, and how many had to be left out."""
    if not look.differ:
        return [LineSeries("probe", scored_probe_cells(table), theme.PALETTE[0], "solid")], 0
    lines = dict(list(scored_probe_cells(table).group_by(look.differ, maintain_order=True)))
    shown = _series_to_draw(table, look.differ, metric, most)
    drawn = [
        LineSeries(
            " · ".join(formats.figure_label(part, 32) for part in key),
            lines[key],
            look.hues[key[0]],
            look.dashes[key[1:]],
        )
        for key in lines
        if key in shown
    ]
    return drawn, len(lines) - len(drawn)


def _series_to_draw(
    table: pl.DataFrame, differ: Sequence[str], metric: str, most: int
) -> list[tuple[object, ...]]:
    """Keys of the lines to draw: the best line of every colour first, then the best of the rest."""
    down = not lower_is_better(metric)
    ranked = chosen_cell_per_group(table, differ, metric).sort(
        "mean", descending=down, maintain_order=True
    )
    firsts = ranked.unique(differ[0], keep="first", maintain_order=True)
    order = [*firsts.select(differ).rows(), *ranked.select(differ).rows()]
    return list(dict.fromkeys(order))[:most]


def draw_lines(figure: go.Figure, drawn: Sequence[LineSeries], x: XValues, row: int) -> None:
    """Series of one panel; intervals as bands while the lines are few, in the hover always."""
    for one in drawn:
        at = x(one.cells)
        if len(drawn) <= MAX_BANDS:
            _band(figure, one, at, row)
        _line(figure, one, at, row)


def _line(figure: go.Figure, one: LineSeries, x: Sequence[float], row: int) -> None:
    table = one.cells
    seen = any(trace.legendgroup == one.name and trace.showlegend for trace in figure.data)
    figure.add_trace(
        go.Scatter(
            x=list(x),
            y=table["mean"].to_list(),
            name=one.name,
            legendgroup=one.name,
            showlegend=not seen,
            mode="lines+markers",
            line={"color": one.colour, "dash": one.dash, "width": 2},
            marker={"size": 6},
            customdata=table.select(POINT_COLUMNS).rows(),
            meta={"columns": list(POINT_COLUMNS)},
            hovertext=hover_texts(table),
            hovertemplate="%{hovertext}",
        ),
        row=row,
        col=1,
    )


def hover_texts(table: pl.DataFrame) -> list[str]:
    """`0.781 [0.760, 0.802], 10 repeats` for each cell."""
    return [
        formats.interval(c["mean"], c["low"], c["high"])
        + (f", {c['repeats']} repeats" if c["repeats"] > 1 else "")
        for c in table.iter_rows(named=True)
    ]


def _band(figure: go.Figure, one: LineSeries, x: Sequence[float], row: int) -> None:
    pairs = zip(x, one.cells["low"], one.cells["high"], strict=True)
    known = [(at, low, high) for at, low, high in pairs if None not in (at, low, high)]
    if len(known) < 2:
        return
    outline = [(at, high) for at, _, high in known] + [(at, low) for at, low, _ in reversed(known)]
    figure.add_trace(
        go.Scatter(
            x=[at for at, _ in outline],
            y=[edge for _, edge in outline],
            fill="toself",
            fillcolor=theme.translucent(one.colour),
            line={"width": 0},
            mode="lines",
            legendgroup=one.name,
            showlegend=False,
            hoverinfo="skip",
            meta={"band": True},
        ),
        row=row,
        col=1,
    )


def matching_cells(table: pl.DataFrame, kind: str, cell: Mapping[str, Any]) -> pl.DataFrame:
    """The cells of another kind (twin, control) read most nearly as `cell` is, layer by layer.

    Those are often measured with one classifier only: then the pooler decides, then the first.
    """
    here = (pl.col("kind") == kind) & pl.col("mean").is_not_null()
    for column in ("model", "data"):
        here = here & (pl.col(column) == cell[column])
    found = table.filter(here)
    for column in ("pool", "classifier"):
        same = found.filter(pl.col(column) == cell[column])
        first = found.filter(pl.col(column) == found[column][0]) if found.height else found
        found = same if same.height else first
    return found


def layer_positions(layers: Sequence[str]) -> dict[str, float]:
    """The position of each layer choice: layers at their number, mixes in a row to their right."""
    single = sorted({int(name) for name in layers if name.isdigit()})
    mixes = list(dict.fromkeys(name for name in layers if not name.isdigit() and name != "-"))
    start = (single[-1] if single else -1) + 1
    step = max(1, math.ceil(len(single) / 12))
    return {**{str(n): float(n) for n in single}} | {
        name: float(start + step * (i + 0.5)) for i, name in enumerate(mixes)
    }


def layer_axis(figure: go.Figure, where: Mapping[str, float]) -> None:
    """An x axis with every layer's number, thinned to a dozen, and the names of the mixes."""
    single = [name for name in where if name.isdigit()]
    step = max(1, math.ceil(len(single) / 12))
    ticks = [n for n in single if (int(n) % step == 0)] + [n for n in where if not n.isdigit()]
    figure.update_xaxes(
        autotickangles=[0, 60],
        tickvals=[where[name] for name in ticks],
        ticktext=[formats.figure_label(n, 14).replace(":", "<br>", 1) for n in ticks],
    )
