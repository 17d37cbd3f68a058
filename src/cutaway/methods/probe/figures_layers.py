"""The figures of `probe` that go through the layers: a line per layer, a map with poolers."""

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.probe import figure_lines
from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    chosen_cell,
    flat_baselines,
    largest_training_size,
    main_metric,
    scored_probe_cells,
    varying_columns,
)
from cutaway.report import formats, panels, theme
from cutaway.report.metric_labels import lower_is_better, metric_axis_label
from cutaway.report.records import RunOrRuns


def layer_scores(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Score by layer with intervals, with the baselines."""
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric))
    where = figure_lines.layer_positions(scored_probe_cells(table)["layers"].to_list())
    if len(where) < 2:
        raise Missing("Score by layer needs at least two layers: try --layers all.")
    sets = scored_probe_cells(table)["data"].unique(maintain_order=True).to_list()
    shown = panels.stack_panels(sets, each=290 if len(sets) == 1 else 210)
    look, missing = figure_lines.line_style(table), 0
    for row, data in enumerate(shown.titles, start=1):
        panel = table.filter(pl.col("data") == data)
        missing += _layer_panel(shown.figure, panel, metric, look, row)
    figure_lines.layer_axis(shown.figure, where)
    words = metric_axis_label(metric)
    shown.figure.update_xaxes(title="layer (0 = embeddings)", row=len(shown.titles))
    shown.figure.update_yaxes(title=words)
    theme.finish_figure(
        shown.figure,
        title=f"{words} by layer",
        pointer=figure_lines.POINTER,
        caption=f"Each point is a probe of one layer; {figure_lines.INTERVAL_NOTE}. The dashed "
        "grey, brown and violet lines are baselines: no model, words alone, random weights, "
        "control task. Only the difference to them is evidence about the model."
        + panels.omitted_note(missing, shown.hidden),
        height=shown.height,
    )
    return shown.figure.update_layout(hovermode="x unified")


def _layer_panel(
    figure: go.Figure, table: pl.DataFrame, metric: str, look: figure_lines.LineStyle, row: int
) -> int:
    """One data set's lines and baselines; how many lines were left out."""
    where = figure_lines.layer_positions(scored_probe_cells(table)["layers"].to_list())
    top = chosen_cell(table, metric)
    assert top is not None  # a panel exists only for a data set with probe cells
    for kind, value in flat_baselines(table, top["data"]).items():
        panels.draw_baseline(figure, kind, list(where.values()), [value] * len(where), row)
    for kind in ("twin", "control"):
        near = figure_lines.matching_cells(table, kind, top).filter(
            pl.col("layers").is_in(list(where))
        )
        if near.height:
            x = [where[name] for name in near["layers"]]
            how = near["classifier"][0]
            more = "" if how == top["classifier"] else f" ({how})"
            panels.draw_baseline(figure, kind, x, near["mean"].to_list(), row, more)
    drawn, left_out = figure_lines.panel_series(table, metric, look)
    figure_lines.draw_lines(figure, drawn, lambda t: [where[name] for name in t["layers"]], row)
    figure.add_annotation(
        x=where[top["layers"]],
        y=top["mean"],
        text=f"chosen: {formats.number(top['mean'])}, "
        f"layer {formats.figure_label(top['layers'], 16)}",
        showarrow=True,
        arrowhead=0,
        arrowwidth=1,
        ax=0,
        ay=28 if lower_is_better(metric) else -28,
        row=row,
        col=1,
    )
    return left_out


def layer_pooler_heatmap(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Layer by pooler, one colour per score; the chosen cell is framed."""
    metric = main_metric(rows, record)
    table = scored_probe_cells(largest_training_size(aggregate_cells(rows, metric)))
    if table["layers"].n_unique() * table["pool"].n_unique() < 4 or table["pool"].n_unique() < 2:
        raise Missing("The layer-by-pooler map needs two poolers: try --pool last,mean.")
    differ = varying_columns(table, ("data", "model", "classifier"))
    groups = table.group_by(differ or ["data"], maintain_order=True)
    grids = {" · ".join(map(str, key)): cells_ for key, cells_ in groups}
    reverse = lower_is_better(metric)
    ranked = sorted(
        grids,
        key=lambda k: (grids[k]["mean"].min() if reverse else grids[k]["mean"].max()) or 0,
        reverse=not reverse,
    )
    shown = panels.stack_panels(ranked, each=34 * table["pool"].n_unique())
    order = list(dict.fromkeys(table["layers"]))
    places = {name: float(i) for i, name in enumerate(order)}
    for row, name in enumerate(shown.titles, start=1):
        _heatmap_panel(shown.figure, grids[name], order, metric, row)
    words = metric_axis_label(metric)
    shown.figure.update_layout(
        coloraxis={
            "colorscale": theme.SEQUENTIAL,
            "reversescale": reverse,
            "colorbar": {"title": {"text": words}},
        }
    )
    shown.figure.update_xaxes(title="layer (0 = embeddings)", row=len(shown.titles))
    shown.figure.update_yaxes(title="pooler", showgrid=False, autorange="reversed")
    figure_lines.layer_axis(shown.figure, places)
    theme.finish_figure(
        shown.figure,
        title=f"{words} by layer and pooler",
        caption="Each square is the mean over repeats of one layer read through one pooler; "
        f"{'darker' if reverse else 'yellower'} is better. The framed square has the best score on "
        "validation rows. The verdict lists the layers that are worse, and those as good."
        + panels.omitted_note(0, shown.hidden),
        pointer="Hover over a square to see its interval.",
        height=shown.height - 30,
    )
    return shown.figure


def _heatmap_panel(
    figure: go.Figure, table: pl.DataFrame, order: list[str], metric: str, row: int
) -> None:
    pools = list(dict.fromkeys(table["pool"]))
    found = {(c["pool"], c["layers"]): c for c in table.iter_rows(named=True)}
    grid = [[found.get((pool, layer)) for layer in order] for pool in pools]
    figure.add_trace(
        go.Heatmap(
            x=list(range(len(order))),
            customdata=[[[formats.figure_label(layer)] for layer in order] for _ in pools],
            y=[formats.figure_label(pool, 20) for pool in pools],
            z=[[c["mean"] if c else None for c in line] for line in grid],
            text=[[_cell_text(c, len(order)) for c in line] for line in grid],
            texttemplate="%{text}",
            textfont={"size": 11},
            hovertext=[[_cell_hover(c) for c in line] for line in grid],
            hovertemplate="%{y}, layer %{customdata[0]}<br>%{hovertext}<extra></extra>",
            meta={"cell": "layers"},
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
        ),
        row=row,
        col=1,
    )
    top = chosen_cell(table, metric)
    if top is not None:
        x, y = order.index(top["layers"]), pools.index(top["pool"])
        frame = {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
        figure.add_shape(**frame, line={"color": "#d55e00", "width": 2.5}, row=row, col=1)


def _cell_text(cell: dict[str, float] | None, columns: int) -> str:
    """The number in a square, when squares are wide enough to hold it."""
    return formats.number(cell["mean"]).lstrip("0") if cell and columns <= 8 else ""


def _cell_hover(cell: dict[str, float] | None) -> str:
    if cell is None:
        return "not measured"
    return formats.interval(cell["mean"], cell["low"], cell["high"])
