"""The figures of `probe` that compare: classifiers, training sizes, model sizes."""

import math

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.probe import figure_lines
from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    chosen_cell_per_group,
    flat_baselines,
    largest_training_size,
    main_metric,
    scored_probe_cells,
)
from cutaway.report import formats, panels, theme
from cutaway.report.metric_labels import lower_is_better, metric_axis_label
from cutaway.report.records import RunOrRuns, parameter_counts


def model_sizes(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Score against model size: each model at the layer chosen on validation rows."""
    metric = main_metric(rows, record)
    counts = parameter_counts(record)
    table = scored_probe_cells(largest_training_size(aggregate_cells(rows, metric))).filter(
        pl.col("model").is_in(list(counts))
    )
    if table["model"].n_unique() < 2:
        raise Missing("Score by model size needs runs of at least two models of known size.")
    known = pl.col("model").replace_strict(counts, default=None, return_dtype=pl.Float64)
    tops = chosen_cell_per_group(table, ("data", "model", "pool", "classifier"), metric)
    tops = tops.with_columns(known.alias("parameters")).sort("parameters", maintain_order=True)
    sets = tops["data"].unique(maintain_order=True).to_list()
    shown = panels.stack_panels(sets, each=270 if len(sets) == 1 else 200)
    look, missing = figure_lines.line_style(tops.with_columns(model=pl.lit("all"))), 0
    for row, data in enumerate(shown.titles, start=1):
        panel = tops.filter(pl.col("data") == data)
        drawn, more = figure_lines.panel_series(
            panel.with_columns(model=pl.lit("all")), metric, look
        )
        missing += more
        ends = sorted(panel["parameters"].unique().to_list())
        for kind, value in flat_baselines(aggregate_cells(rows, metric), data).items():
            panels.draw_baseline(shown.figure, kind, ends, [value] * len(ends), row)
        figure_lines.draw_lines(shown.figure, drawn, lambda t: t["parameters"].to_list(), row)
        _label_models(shown.figure, panel, metric, row)
    words = metric_axis_label(metric)
    shown.figure.update_xaxes(type="log")
    marks = sorted({counts[m] for m in tops["model"].unique()})
    shown.figure.update_xaxes(tickvals=marks, ticktext=[formats.count(m) for m in marks])
    shown.figure.update_xaxes(title="model size (parameters, log scale)", row=len(shown.titles))
    shown.figure.update_yaxes(title=words)
    return theme.finish_figure(
        shown.figure,
        title=f"{words} by model size",
        pointer=figure_lines.POINTER,
        caption="Each model is shown at the layer chosen on validation rows, larger models to the "
        "right; "
        f"{figure_lines.INTERVAL_NOTE}. A flat line means that size alone does not help."
        + panels.omitted_note(missing, shown.hidden),
        height=shown.height,
    )


def _label_models(figure: go.Figure, panel: pl.DataFrame, metric: str, row: int) -> None:
    # Runs of one size share an x position: one name is enough.
    for top in chosen_cell_per_group(panel, ("parameters",), metric).iter_rows(named=True):
        figure.add_annotation(
            # Annotations on a log axis are placed by the exponent.
            x=math.log10(top["parameters"]),
            y=top["mean"],
            text=formats.figure_label(top["model"].rsplit("/", 1)[-1], 22),
            font={"size": 11},
            yshift=15,
            row=row,
            col=1,
        )


def classifiers(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Each classifier at the layer and pooler chosen on validation rows, with the baselines."""
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric))
    tops = chosen_cell_per_group(table, ("data", "model", "classifier"), metric)
    if tops.is_empty():
        raise Missing("No probe in this run has a score. Its failures are listed in the table.")
    sets = tops["data"].unique(maintain_order=True).to_list()
    tallest = tops["classifier"].n_unique() + len(flat_baselines(table, sets[0]))
    shown = panels.stack_panels(sets, each=26 * tallest + 16)
    for row, data in enumerate(shown.titles, start=1):
        _dot_panel(shown.figure, table, tops, data, metric, row)
    words = metric_axis_label(metric)
    shown.figure.update_xaxes(title=words, row=len(shown.titles))
    shown.figure.update_xaxes(showgrid=True)
    shown.figure.update_yaxes(title="classifier", showgrid=False)
    return theme.finish_figure(
        shown.figure,
        title=f"{words} by classifier",
        pointer="Hover over a dot to see its layer and pooler.",
        caption="Each dot is a classifier at the layer and pooler chosen on validation rows, the "
        "line through it the 95 % interval of the mean over repeats. Grey diamonds need no "
        "model. Where intervals overlap, see the verdict: it compares the cells pairwise."
        + panels.omitted_note(0, shown.hidden),
        height=shown.height - 20,
    )


def _dot_panel(
    figure: go.Figure, table: pl.DataFrame, tops: pl.DataFrame, data: str, metric: str, row: int
) -> None:
    """Dots of one data set, worst at the bottom."""
    down = lower_is_better(metric)
    panel = tops.filter(pl.col("data") == data).sort("mean", descending=down)
    hues = theme.assign_colours(tops["model"].unique(maintain_order=True).to_list())
    several = len(hues) > 1
    for kind, value in flat_baselines(table, data).items():
        _dot_baseline(figure, kind, value, row)
    for model, hue in hues.items():
        mine = panel.filter(pl.col("model") == model)
        if mine.height:
            _dots(figure, mine, formats.figure_label(model, 32) if several else "probe", hue, row)
    order = [
        *flat_baselines(table, data),
        *panel["classifier"].unique(maintain_order=True),
    ]
    figure.update_yaxes(
        categoryorder="array", categoryarray=[_dot_name(n) for n in order], row=row, col=1
    )


def _dots(figure: go.Figure, mine: pl.DataFrame, name: str, hue: str, row: int) -> None:
    known = [c["low"] is not None and c["high"] is not None for c in mine.iter_rows(named=True)]
    above = [c["high"] - c["mean"] if k else 0 for c, k in zip(mine.to_dicts(), known, strict=True)]
    below = [c["mean"] - c["low"] if k else 0 for c, k in zip(mine.to_dicts(), known, strict=True)]
    seen = any(t.legendgroup == name and t.showlegend for t in figure.data)
    figure.add_trace(
        go.Scatter(
            x=mine["mean"].to_list(),
            y=[_dot_name(n) for n in mine["classifier"]],
            error_x={"array": above, "arrayminus": below, "thickness": 2, "width": 5},
            name=name,
            legendgroup=name,
            showlegend=not seen,
            mode="markers",
            marker={"size": 10, "color": hue},
            customdata=mine.select("layers", "pool", "low", "high", "repeats").rows(),
            meta={"columns": ["layers", "pool", "low", "high", "repeats"]},
            hovertext=[
                f"{text}<br>layer {formats.figure_label(c['layers'])}, "
                f"pooler {formats.figure_label(c['pool'])}"
                for text, c in zip(figure_lines.hover_texts(mine), mine.to_dicts(), strict=True)
            ],
            hovertemplate="<b>%{y}</b> %{hovertext}<extra></extra>",
        ),
        row=row,
        col=1,
    )


def _dot_baseline(figure: go.Figure, kind: str, value: float, row: int) -> None:
    seen = any(t.legendgroup == "baseline" and t.showlegend for t in figure.data)
    figure.add_trace(
        go.Scatter(
            x=[value],
            y=[_dot_name(kind)],
            name="baseline without a model",
            legendgroup="baseline",
            showlegend=not seen,
            mode="markers",
            marker={"size": 9, "color": theme.NEUTRAL, "symbol": "diamond"},
            hovertemplate="<b>%{y}</b> %{x:.3f}<extra></extra>",
        ),
        row=row,
        col=1,
    )


def _dot_name(name: str) -> str:
    return formats.figure_label(
        theme.BASELINE_STYLES[name][0] if name in theme.BASELINE_STYLES else name, 30
    )


def learning_curve(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Score against the number of training rows."""
    metric = main_metric(rows, record)
    table = aggregate_cells(rows, metric)
    same = ["data", "model", "pool", "classifier", "layers"]
    several = pl.col("size").n_unique().over(same) > 1
    found = scored_probe_cells(table).filter(pl.col("size").is_not_null()).filter(several)
    if found.is_empty():
        raise Missing("A learning curve needs several training sizes: try --protocol curve.")
    # The ranking of layers changes with size; each line shows the layer chosen at full size.
    fixed = chosen_cell_per_group(
        largest_training_size(found), ("data", "model", "pool", "classifier"), metric
    )
    table_ = found.join(fixed.select(same), on=same, how="semi").sort("size", maintain_order=True)
    sets = table_["data"].unique(maintain_order=True).to_list()
    shown = panels.stack_panels(sets, each=270 if len(sets) == 1 else 200)
    look, missing = figure_lines.line_style(table_), 0
    for row, data in enumerate(shown.titles, start=1):
        panel = table_.filter(pl.col("data") == data)
        flat = largest_training_size(table.filter(pl.col("kind") == "baseline"))
        ends = sorted(panel["size"].unique().to_list())
        for kind, value in flat_baselines(flat, data).items():
            panels.draw_baseline(shown.figure, kind, ends, [value] * len(ends), row)
        drawn, more = figure_lines.panel_series(panel, metric, look)
        missing += more
        figure_lines.draw_lines(shown.figure, drawn, lambda t: t["size"].to_list(), row)
    words = metric_axis_label(metric)
    shown.figure.update_xaxes(type="log")
    marks = sorted(table_["size"].unique().to_list())
    shown.figure.update_xaxes(tickvals=marks, ticktext=[formats.count(m) for m in marks])
    shown.figure.update_xaxes(title="training rows (log scale)", row=len(shown.titles))
    shown.figure.update_yaxes(title=words)
    return theme.finish_figure(
        shown.figure,
        title=f"{words} by training size",
        pointer=figure_lines.POINTER,
        caption="Each line shows the layer that validation rows choose at the largest size; "
        f"{figure_lines.INTERVAL_NOTE}. If a line still rises on the right, more data would help; "
        "a dip near the width of the states is double descent."
        + panels.omitted_note(missing, shown.hidden),
        height=shown.height,
    )
