"""Heat maps of a skill's weights by block and module, and by attention head."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.graft.table import need_single_base
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

LEARN_COMMAND = "cutaway graft learn --base --tuned --task"


def module_heatmap(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Number of the skill's weights by block and module."""
    table = rows.filter(pl.col("metric").is_in(["weights", "density"]))
    if table.filter(pl.col("layer").is_not_null()).is_empty():
        raise Missing(f"This run has no weights by module: {LEARN_COMMAND} counts them.")
    need_single_base(table)
    inside = table.filter(pl.col("layer").is_not_null())
    counts, shares = (
        {
            (c["part"], c["layer"]): c["value"]
            for c in inside.filter(pl.col("metric") == metric).iter_rows(named=True)
        }
        for metric in ("weights", "density")
    )
    modules = inside["part"].unique(maintain_order=True).to_list()
    layers = sorted(set(inside["layer"]))
    outside = table.filter(pl.col("layer").is_null() & (pl.col("metric") == "weights"))
    figure = go.Figure(
        go.Heatmap(
            x=layers,
            y=[formats.figure_label(m) for m in modules],
            z=[[counts.get((m, layer)) for layer in layers] for m in modules],
            customdata=[[[shares.get((m, layer))] for layer in layers] for m in modules],
            hovertemplate="block %{x}, %{y}<br>%{z:,.0f} weights, %{customdata[0]:.2e} of the "
            "module<extra></extra>",
            coloraxis="coloraxis",
            hoverongaps=False,
        )
    )
    _set_colour_axis(figure, "weights")
    figure.update_xaxes(title="block")
    return theme.finish_figure(
        figure,
        title="Location of the skill",
        caption="Chosen weights per block and module."
        f" Outside the blocks: {_outside_blocks(outside)}.",
        pointer="Hover for their share of the module.",
        height=max(320, 26 * len(modules) + 170),
    )


def head_heatmap(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Number of the skill's weights by block and attention head."""
    table = rows.filter(pl.col("metric") == "head_weights")
    if table.is_empty():
        raise Missing(f"This run has no weights by attention head: {LEARN_COMMAND} counts them.")
    need_single_base(table)
    found = {(c["layer"], c["head"]): c["value"] for c in table.iter_rows(named=True)}
    layers = list(range(1, max(layer for layer, _ in found) + 1))
    columns = list(range(max(head for _, head in found) + 1))
    figure = go.Figure(
        go.Heatmap(
            x=columns,
            y=layers,
            z=[[found.get((layer, head), 0.0) for head in columns] for layer in layers],
            hovertemplate="block %{y}, head %{x}: %{z:,.1f} weights<extra></extra>",
            coloraxis="coloraxis",
        )
    )
    _set_colour_axis(figure, "weights")
    figure.update_xaxes(title="attention head")
    figure.update_yaxes(title="block")
    return theme.finish_figure(
        figure,
        title="Location of the skill in the attention heads",
        caption="Chosen weights in query, key, value and output projections, per block and "
        "head. Weights of a key or value head that several heads share are split equally.",
        height=max(320, 22 * len(layers) + 170),
    )


def _set_colour_axis(figure: go.Figure, title: str) -> None:
    scale: dict[str, Any] = {"colorscale": theme.SEQUENTIAL, "cmin": 0}
    figure.update_layout(coloraxis={**scale, "colorbar": {"title": {"text": title}}})


def _outside_blocks(table: pl.DataFrame) -> str:
    held = [(c["part"], c["value"]) for c in table.iter_rows(named=True) if c["value"]]
    return ", ".join(f"{formats.figure_label(part)} {value:,.0f}" for part, value in held) or "none"
