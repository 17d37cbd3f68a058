"""The figures of `inject` by name: gain and cost, learning curves, Fisher information, drift.

A figure is drawn from the rows and the run they come from; it raises Missing, with a remedy, when
the run has nothing to draw.
"""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.methods.inject.figure_styles import error_bars, training_styles
from cutaway.methods.inject.figures_ledger import COMMAND, KEYS, ledger, pareto
from cutaway.methods.inject.figures_weights import fisher_at_top_entries, weight_map
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

CURVES = {
    "exact_match": "exact match on dev",
    "retained_loss": "loss on retained texts",
    "skill": "loss on training questions",
}
MODULES = ("embeddings", "norm1", "attn", "norm2", "mlp", "other", "norm", "head")


def kinds(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Exact match by kind of question, and beyond the range of training."""
    table = rows.filter((pl.col("stage") == "after") & (pl.col("metric") == "exact_match"))
    if table.is_empty():
        raise Missing(f"This run has no answers: {COMMAND} measures them.")
    skill, styles = str(table["skill"][0]), training_styles(rows)
    figure = go.Figure()
    for (name, strength), cells in table.group_by(KEYS, maintain_order=True):
        style = styles[str(name), float(str(strength))]
        means = cells.group_by("probe", maintain_order=True).agg(
            pl.col("value", "low", "high").mean()
        )
        figure.add_trace(
            go.Scatter(
                x=[probe.removeprefix(f"{skill} ") for probe in means["probe"]],
                y=means["value"],
                error_y=error_bars(means),
                mode="markers",
                name=style.name,
                marker={"color": style.colour, "symbol": style.symbol, "size": 9},
            )
        )
    figure.update_layout(scattermode="group", scattergap=0.5)
    figure.update_yaxes(title="exact match", range=[-0.02, 1.05])
    return theme.finish_figure(
        figure,
        title="Exact match by kind of question",
        caption="Exact match on test questions by the columns of the data that have few values "
        "(of arithmetic: digits of the longer operand, operator, carries), with 95 % intervals. "
        "test is all of them, beyond is outside the range of training. Undecodable answers count "
        "as wrong.",
    )


def learning(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Learning curves: exact match on dev questions, loss on retained texts, by step."""
    curves = rows.filter((pl.col("stage") == "training") & (pl.col("probe") == "curve"))
    metrics = [metric for metric in CURVES if metric in curves["metric"]]
    if not metrics:
        raise Missing(f"This run has no learning curves: {COMMAND} draws them.")
    figure = make_subplots(rows=1, cols=len(metrics), subplot_titles=[CURVES[m] for m in metrics])
    styles = training_styles(rows)
    for column, metric in enumerate(metrics, start=1):
        cells = curves.filter(pl.col("metric") == metric).drop_nulls("value")
        for (name, strength, seed), line in cells.group_by([*KEYS, "seed"], maintain_order=True):
            style = styles[str(name), float(str(strength))]
            trace = go.Scatter(
                x=line["step"],
                y=line["value"],
                mode="lines+markers",
                name=style.name,
                legendgroup=style.name,
                showlegend=column == 1 and seed == cells["seed"].min(),
                line={"color": style.colour, "dash": style.dash},
                marker={"symbol": style.symbol},
                opacity=0.85,
            )
            figure.add_trace(trace, row=1, col=column)
    figure.update_xaxes(title="step")
    return theme.finish_figure(
        figure,
        title="Learning curves of the skill and of the retained texts",
        caption="At every evaluation: the share of dev questions answered correctly, the language "
        "loss on some retained texts that are used for nothing else, and the mean loss on training "
        "questions since the previous evaluation. One line per training.",
    )


def layer_heatmap(stage: str, title: str, caption: str, missing: str) -> Callable[..., go.Figure]:
    """A figure function: layer by module, one panel per training or Fisher."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        table = rows.filter((pl.col("stage") == stage) & pl.col("probe").str.contains("/"))
        if table.is_empty():
            raise Missing(missing)
        panels = {
            formats.figure_label(_panel_title(*key)): cells
            for key, cells in table.group_by([*KEYS, "metric"], maintain_order=True)
        }
        figure = make_subplots(
            rows=1, cols=len(panels), subplot_titles=list(panels), shared_yaxes=True
        )
        for column, cells in enumerate(panels.values(), start=1):
            figure.add_trace(_heatmap_trace(cells), row=1, col=column)
        figure.update_layout(coloraxis={"colorscale": theme.SEQUENTIAL})
        figure.update_yaxes(title="layer", col=1)
        return theme.finish_figure(figure, title=title, caption=caption, height=430)

    # The docs list every figure by this line.
    draw.__doc__ = f"{title}: layer by module, a panel per training or Fisher."
    return draw


def _panel_title(regulariser: Any, strength: Any, metric: Any) -> str:
    if strength is None:
        return str(metric)
    return f"{regulariser} {strength:g}" if strength else str(regulariser)


def _heatmap_trace(cells: pl.DataFrame) -> go.Heatmap:
    values: dict[tuple[int, str], float] = {}
    means = cells.group_by("probe", maintain_order=True).agg(pl.col("value").mean())
    for probe, value in means.iter_rows():
        layer, _, module = probe.partition("/")
        values[int(layer), module] = value
    layers = sorted({layer for layer, _ in values})
    modules = [m for m in MODULES if any(module == m for _, module in values)]
    return go.Heatmap(
        x=modules,
        y=layers,
        z=[[values.get((layer, module)) for module in modules] for layer in layers],
        hovertemplate="layer %{y}, %{x}: %{z:.4g}<extra></extra>",
        coloraxis="coloraxis",
        hoverongaps=False,
    )


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "pareto": pareto,
    "ledger": ledger,
    "kinds": kinds,
    "learning": learning,
    "fisher": layer_heatmap(
        "fisher",
        "Fisher information by layer and module",
        "The share of the Fisher information in each module of each layer. Layer 0 is the "
        "embeddings; the final norm and the head come after the last block. Where two Fishers are "
        "bright in the same cells, both depend on the same weights.",
        f"This run has no Fisher: use cutaway fisher, or {COMMAND} --clash.",
    ),
    "drift": layer_heatmap(
        "drift",
        "Weight change by layer and module",
        "How far the weights of each module of each layer moved from the base model, relative to "
        "their norm. A regulariser that keeps weights near their start has a darker panel.",
        f"This run trained no weights: use {COMMAND}.",
    ),
    "top": fisher_at_top_entries,
    "weights": weight_map,
}
