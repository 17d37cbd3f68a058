"""The figures of `inject`, by name: what a skill costs, where it clashes, how it was learned.

A figure takes the rows and the run they come from; it raises Missing, with the way to mend it,
when the run holds nothing to draw.
"""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.methods.inject.figure_styles import training_styles
from cutaway.methods.inject.figures_ledger import interval_error_bars, ledger, pareto
from cutaway.methods.inject.figures_weights import fisher_at_top_entries, weight_map
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

COMMAND = "cutaway inject"


def digits(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Exact match by digits, operator and carries, and beyond the range of training."""
    table = rows.filter((pl.col("stage") == "after") & (pl.col("metric") == "exact_match"))
    if table.is_empty():
        raise Missing(f"This run has no answers to look at: {COMMAND} gives some.")
    skill, styles = str(table["skill"][0]), training_styles(rows)
    figure = go.Figure()
    for (name, strength), cells in table.group_by(["regulariser", "strength"], maintain_order=True):
        look = styles[str(name), float(str(strength))]
        means = cells.group_by("probe", maintain_order=True).agg(
            pl.col("value", "low", "high").mean()
        )
        figure.add_trace(
            go.Scatter(
                x=[probe.removeprefix(f"{skill} ") for probe in means["probe"]],
                y=means["value"],
                error_y=interval_error_bars(means),
                mode="markers",
                name=look.name,
                marker={"color": look.colour, "symbol": look.symbol, "size": 9},
            )
        )
    figure.update_layout(scattermode="group", scattergap=0.5)
    figure.update_yaxes(title="exact match", range=[-0.02, 1.05])
    return theme.finish_figure(
        figure,
        title="Which problems are solved",
        caption="Exact match on held-out problems by digits of the longer operand, operator and "
        "carries, with 95 % intervals; test is all of them, beyond lies outside the range of "
        "training. Answers that are no number count as wrong.",
    )


def learning(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Learning curves: exact match on dev problems, loss on retained texts, by step."""
    curves = rows.filter((pl.col("stage") == "training") & (pl.col("probe") == "curve"))
    metrics = [m for m in ("exact_match", "retained_loss", "skill") if m in curves["metric"]]
    if not metrics:
        raise Missing(f"This run has no learning curves: {COMMAND} draws them.")
    words = {
        "exact_match": "exact match on dev",
        "retained_loss": "loss on retained texts",
        "skill": "loss on training problems",
    }
    figure = make_subplots(rows=1, cols=len(metrics), subplot_titles=[words[m] for m in metrics])
    styles = training_styles(rows)
    for column, metric in enumerate(metrics, start=1):
        cells = curves.filter(pl.col("metric") == metric).drop_nulls("value")
        for (name, strength, seed), line in cells.group_by(
            ["regulariser", "strength", "seed"], maintain_order=True
        ):
            look = styles[str(name), float(str(strength))]
            trace = go.Scatter(
                x=line["step"],
                y=line["value"],
                mode="lines+markers",
                name=look.name,
                legendgroup=look.name,
                showlegend=column == 1 and seed == cells["seed"].min(),
                line={"color": look.colour, "dash": look.dash},
                marker={"symbol": look.symbol},
                opacity=0.85,
            )
            figure.add_trace(trace, row=1, col=column)
    figure.update_xaxes(title="step")
    return theme.finish_figure(
        figure,
        title="How it was learned, and when the rest went",
        caption="At every evaluation: the share of dev problems solved, the language loss on some "
        "retained texts that are used for nothing else, and the mean loss on training problems "
        "since the evaluation before. One line per training.",
    )


def layer_heatmap(stage: str, title: str, caption: str, missing: str) -> Callable[..., go.Figure]:
    """A figure function: layer x module, one panel per training or Fisher."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        table = rows.filter((pl.col("stage") == stage) & pl.col("probe").str.contains("/"))
        if table.is_empty():
            raise Missing(missing)
        panels = {
            formats.figure_label(_panel_title(*key)): cells
            for key, cells in table.group_by(
                ["regulariser", "strength", "metric"], maintain_order=True
            )
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
    # Plain training has no strength to tell.
    return f"{regulariser} {strength:g}" if strength else str(regulariser)


def _heatmap_trace(cells: pl.DataFrame) -> go.Heatmap:
    found: dict[tuple[int, str], float] = {}
    means = cells.group_by("probe", maintain_order=True).agg(pl.col("value").mean())
    for probe, value in means.iter_rows():
        layer, _, module = probe.partition("/")
        found[int(layer), module] = value
    layers = sorted({layer for layer, _ in found})
    order = ("embeddings", "norm1", "attn", "norm2", "mlp", "other", "norm", "head")
    modules = [m for m in order if any(module == m for _, module in found)]
    return go.Heatmap(
        x=modules,
        y=layers,
        z=[[found.get((layer, module)) for module in modules] for layer in layers],
        hovertemplate="layer %{y}, %{x}: %{z:.4g}<extra></extra>",
        coloraxis="coloraxis",
        hoverongaps=False,
    )


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "pareto": pareto,
    "ledger": ledger,
    "digits": digits,
    "learning": learning,
    "fisher": layer_heatmap(
        "fisher",
        "Where the Fisher lies",
        "The share of the Fisher's sum in each part of each layer: 0 are the embeddings, behind "
        "the last block stand the final norm and the head. Where two Fishers are bright in the "
        "same places, the skills want the same weights.",
        f"This run has no Fisher: cutaway fisher makes one, {COMMAND} --clash two.",
    ),
    "drift": layer_heatmap(
        "drift",
        "Which weights moved",
        "How far each part of each layer moved from the base, relative to its length. A "
        "regulariser that holds weights shows as a darker panel.",
        f"This run has moved no weights: {COMMAND} trains.",
    ),
    "top": fisher_at_top_entries,
    "weights": weight_map,
}
