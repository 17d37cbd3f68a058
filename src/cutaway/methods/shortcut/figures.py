"""The figures of `shortcut`, by name.

A figure takes the rows and the run they come from; it raises Missing, with the command that
measures the data, when the run has nothing to draw.
"""

from collections.abc import Callable, Iterator
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.report import formats, panels, theme
from cutaway.report.records import RunOrRuns

COLOURS = {
    "id": theme.NEUTRAL,
    "mat": theme.PALETTE[0],
    "affine": theme.PALETTE[5],
    "ridge": theme.PALETTE[2],
    "lowrank": theme.PALETTE[7],
    "tuned": theme.PALETTE[1],
    "part:norms": theme.PALETTE[3],
    "part:attn": theme.PALETTE[4],
    "part:mlp": theme.PALETTE[6],
}
MAP_KINDS = ("id", "mat", "affine", "ridge", "lowrank", "tuned")
TITLES = {
    "precision@1": "agreement with the full model's prediction",
    "precision@5": "prediction is in the full model's top 5",
    "precision@10": "prediction is in the full model's top 10",
    "surprisal": "surprisal of the prediction (nats)",
    "kl": "KL from the full distribution (nats)",
    "entropy": "entropy (nats)",
    "perplexity": "perplexity of the true next token",
}
BAND_CAPTION = "bands: 95 % interval of the mean over tokens"
# Heat maps that fit side by side.
MAX_HEATMAPS = 4


def _by_model_and_text(table: pl.DataFrame) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """For each model and text: a suffix for names, a line dash, and the rows."""
    columns = [c for c in ("model", "text") if table[c].n_unique() > 1]
    if not columns:
        yield "", theme.DASHES[0], table
        return
    for i, (names, rows) in enumerate(table.group_by(columns, maintain_order=True)):
        yield f" · {' on '.join(map(str, names))}", theme.DASHES[i % len(theme.DASHES)], rows


def r2_figure(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Heat maps of r2 from every layer to every later one: fitted map and identity."""
    table = rows.filter(pl.col("metric") == "r2")
    if table.filter(pl.col("kind") == "mat").height < 3:
        raise Missing(
            "The r2 heat map needs several pairs of layers: cutaway shortcut fit --layers all"
        )
    heatmaps = {
        f"{kind}{suffix}": cells
        for suffix, _, group in _by_model_and_text(table)
        for kind in ("mat", "id")
        if not (cells := group.filter(pl.col("kind") == kind)).is_empty()
    }
    drawn = dict(list(heatmaps.items())[:MAX_HEATMAPS])
    titles = [formats.figure_label(name) for name in drawn]
    figure = make_subplots(rows=1, cols=len(drawn), subplot_titles=titles, shared_yaxes=True)
    for column, cells in enumerate(drawn.values(), start=1):
        figure.add_trace(_r2_heatmap(cells), row=1, col=column)
    figure.update_layout(coloraxis=theme.unit_coloraxis("r2"))
    figure.update_xaxes(title="from layer")
    figure.update_yaxes(title="to layer", col=1)
    return theme.finish_figure(
        figure,
        title="How linear the change between two layers is",
        caption="Share of the target layer's variance that the map from the source layer explains "
        "on held-out tokens, averaged over coordinates. Values below 0 (worse than predicting the "
        "mean) are drawn as 0." + panels.omitted_note(max(0, len(heatmaps) - MAX_HEATMAPS), 0),
        height=430,
        pointer="Hover over a cell to see its value.",
    )


def _r2_heatmap(cells: pl.DataFrame) -> go.Heatmap:
    r2 = {(c["target"], c["source"]): c["value"] for c in cells.iter_rows(named=True)}
    targets = sorted({target for target, _ in r2})
    sources = sorted({source for _, source in r2})
    exact = [[r2.get((t, s)) for s in sources] for t in targets]
    return go.Heatmap(
        x=sources,
        y=targets,
        z=[[None if v is None else max(v, 0.0) for v in line] for line in exact],
        customdata=[[[formats.number(v)] for v in line] for line in exact],
        meta={"cell": "r2"},
        hovertemplate="layer %{x} to %{y}<br>r2 %{customdata[0]}<extra></extra>",
        coloraxis="coloraxis",
        hoverongaps=False,
    )


def layer_figure(metric: str, title: str) -> Callable[[pl.DataFrame, RunOrRuns], go.Figure]:
    """A figure of one metric by layer, a line per kind of map."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        table = rows.filter((pl.col("metric") == metric) & pl.col("lambda").is_null())
        table = table.filter(pl.col("confidence").is_null() & pl.col("kind").is_in(MAP_KINDS))
        if table.is_empty():
            raise Missing(f"This run has no {metric} by layer: cutaway shortcut eval measures it.")
        figure = go.Figure()
        for suffix, dash, group in _by_model_and_text(table):
            for (kind,), cells in group.group_by(["kind"], maintain_order=True):
                _add_line(figure, cells.sort("layer"), "layer", str(kind), suffix, dash)
        figure.update_xaxes(title="layer (0 = embeddings)")
        figure.update_yaxes(title=TITLES[metric])
        return theme.finish_figure(figure, title=title, caption=_caption(metric)).update_layout(
            hovermode="x unified"
        )

    return draw


def _caption(metric: str) -> str:
    return (
        f"Each point predicts from one layer as if it were the last: {TITLES[metric]}. id applies "
        f"no map (the logit lens), the others a fitted map; {BAND_CAPTION}."
    )


def parts_figure(metric: str, title: str) -> Callable[[pl.DataFrame, RunOrRuns], go.Figure]:
    """A figure of one metric when parts of all blocks after a layer are replaced by maps."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        is_part = pl.col("kind").str.starts_with("part")
        jump = (pl.col("kind") == "mat") & pl.col("lambda").is_null()
        table = rows.filter(pl.col("metric") == metric)
        if table.filter(is_part).is_empty():
            raise Missing(
                "This run has no replaced parts: use shortcut fit --parts, then shortcut eval."
            )
        figure = go.Figure()
        drawn = table.filter((jump & pl.col("confidence").is_null()) | is_part)
        for suffix, dash, group in _by_model_and_text(drawn):
            for (kind,), cells in group.sort(pl.col("kind") != "mat", maintain_order=True).group_by(
                ["kind"], maintain_order=True
            ):
                _add_line(figure, cells.sort("layer"), "layer", str(kind), suffix, dash)
        figure.update_xaxes(title="layer after which parts are replaced")
        figure.update_yaxes(title=TITLES[metric])
        return theme.finish_figure(
            figure,
            title=title,
            caption="Original blocks up to the layer, then blocks whose norms, attention or MLP "
            f"are one matrix each; mat skips all of these blocks at once; {BAND_CAPTION}.",
        )

    return draw


def exits_figure(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Mean layers against agreement: one point per lambda, and fixed exit layers to compare."""
    curves = rows.filter(pl.col("lambda").is_not_null())
    if curves.is_empty():
        raise Missing("This run has no early exits: cutaway shortcut exit measures them.")
    figure = go.Figure()
    keys = ["kind", "confidence"]
    for suffix, _, group in _by_model_and_text(rows.filter(pl.col("confidence").is_not_null())):
        shown = group.filter(pl.col("lambda").is_not_null())
        wide = shown.pivot(on="metric", index=[*keys, "lambda"], values="value")
        names = wide["confidence"].unique(maintain_order=True).to_list()
        for (kind, name), cells in wide.group_by(keys, maintain_order=True):
            dash = theme.DASHES[names.index(name) % len(theme.DASHES)]
            line, points = {"color": COLOURS.get(str(kind)), "dash": dash}, cells.sort("lambda")
            _add_scatter(
                figure, points["layers"], points["precision@1"], f"{kind}, {name}{suffix}", line,
                customdata=[[value] for value in points["lambda"]], meta={"columns": ["lambda"]},
                hovertemplate="lambda %{customdata[0]}<br>%{x:.2f} layers, %{y:.3f}<extra></extra>",
            )  # fmt: skip
        for (kind,), cells in group.filter(pl.col("confidence") == "fixed").group_by(
            ["kind"], maintain_order=True
        ):
            thin = {"color": COLOURS.get(str(kind)), "dash": "dot", "width": 1}
            points, name = cells.sort("layer"), f"{kind}, fixed layer{suffix}"
            _add_scatter(figure, points["layer"], points["value"], name, thin, mode="lines")
    figure.update_xaxes(title="mean layers processed")
    figure.update_yaxes(title=TITLES["precision@1"])
    return theme.finish_figure(
        figure,
        title="Early exit: layers processed against agreement",
        caption="Each point is one lambda: tokens exit at the first layer whose confidence exceeds "
        "the threshold. Further left is cheaper, further up agrees more often with the full model. "
        "Thin dotted lines: every token exits at the same layer.",
    )


def _add_line(
    figure: go.Figure, cells: pl.DataFrame, x: str, kind: str, suffix: str = "", dash: str = "solid"
) -> None:
    """The line of one kind with its interval band."""
    colour, group = COLOURS.get(kind, theme.PALETTE[7]), f"{kind}{suffix}"
    ends = cells.drop_nulls(["low", "high"])
    if not ends.is_empty():
        around = [*ends[x], *reversed(ends[x].to_list())]
        band = [*ends["high"], *reversed(ends["low"].to_list())]
        options = {"fill": "toself", "mode": "none", "fillcolor": colour, "opacity": 0.15}
        hidden = {"hoverinfo": "skip", "showlegend": False, "meta": {"band": True}}
        figure.add_trace(go.Scatter(x=around, y=band, legendgroup=group, **options, **hidden))
    _add_scatter(
        figure, cells[x], cells["value"], group, {"color": colour, "dash": dash}, legendgroup=group
    )


def _add_scatter(
    figure: go.Figure, x: Any, y: Any, name: str, line: dict[str, Any], **options: Any
) -> None:
    options = {"mode": "lines+markers", "line": line, **options}
    figure.add_trace(go.Scatter(x=x, y=y, name=formats.figure_label(name), **options))


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "precision": layer_figure("precision@1", "Agreement of each layer with the full model"),
    "precision@5": layer_figure("precision@5", "Is the prediction in the full model's top 5?"),
    "precision@10": layer_figure("precision@10", "Is the prediction in the full model's top 10?"),
    "surprisal": layer_figure(
        "surprisal", "Surprisal of each layer's prediction under the full model"
    ),
    "kl": layer_figure("kl", "KL divergence of each layer from the full model"),
    "perplexity": layer_figure("perplexity", "Perplexity of the true next token by layer"),
    "r2": r2_figure,
    "parts": parts_figure("precision@1", "Which parts of a block can be replaced by a linear map"),
    "parts@5": parts_figure(
        "precision@5", "Replaced parts: is the prediction in the full model's top 5?"
    ),
    "parts@10": parts_figure(
        "precision@10", "Replaced parts: is the prediction in the full model's top 10?"
    ),
    "parts_surprisal": parts_figure(
        "surprisal", "Replaced parts: surprisal of the prediction under the full model"
    ),
    "exits": exits_figure,
}
