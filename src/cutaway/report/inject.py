"""The figures of `inject`, by name: what a skill costs, where it clashes, how it was learned.

A figure takes the rows and the run they come from; it raises Missing, with the way to mend it,
when the run holds nothing to draw.
"""

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.report import formats, theme
from cutaway.report.inject_maps import clash_top, weight_map
from cutaway.report.records import Drawable

COLOURS = {
    "none": theme.NEUTRAL,
    "ewc": theme.PALETTE[0],
    "l2sp": theme.PALETTE[1],
    "kl": theme.PALETTE[2],
    "replay": theme.PALETTE[3],
}
RUN = "cutaway inject"


def colour(regulariser: str) -> str:
    """The same colour for a regulariser with and without adapters."""
    return COLOURS.get(regulariser.partition("+")[0], theme.PALETTE[4])


def pareto(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """Exact match against forgetting: one point per strength, a line per regulariser."""
    points = points_of(rows)
    if points.is_empty():
        raise Missing(f"This run has no trainings to compare: {RUN} --regulariser none,ewc.")
    figure = go.Figure()
    for (name,), cells in points.group_by(["regulariser"], maintain_order=True):
        figure.add_trace(_pareto_line(str(name), cells.sort("strength")))
    figure.update_xaxes(title="forgetting: rise of the loss on retained texts (nats)")
    figure.update_yaxes(title="exact match on held-out problems", range=[-0.02, 1.05])
    return theme.finish(
        figure,
        title="What the skill gains, and what the rest loses",
        caption="Each point is one strength, mean over seeds, bars from the lowest to the highest "
        "seed. Up and to the left is better: a point is beaten by every point that lies above and "
        "left of it. none is plain training.",
        height=460,
    )


def points_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per regulariser and strength: exact match and forgetting over seeds."""
    after = rows.filter(pl.col("stage") == "after")
    exact = after.filter(
        (pl.col("metric") == "exact_match") & pl.col("probe").str.ends_with(" test")
    )
    lost = after.filter(pl.col("metric") == "forgetting")
    keys = ["regulariser", "strength"]
    return _over_seeds(exact, keys, "exact").join(
        _over_seeds(lost, keys, "lost"), on=keys, how="inner", maintain_order="left"
    )


def _over_seeds(rows: pl.DataFrame, keys: Sequence[str], name: str) -> pl.DataFrame:
    by_seed = rows.group_by([*keys, "seed"], maintain_order=True).agg(pl.col("value").mean())
    return by_seed.group_by(list(keys), maintain_order=True).agg(
        pl.col("value").mean().alias(name),
        pl.col("value").min().alias(f"{name}_low"),
        pl.col("value").max().alias(f"{name}_high"),
    )


def _pareto_line(name: str, cells: pl.DataFrame) -> go.Scatter:
    def reach(what: str) -> dict[str, Any]:
        above = (cells[f"{what}_high"] - cells[what]).to_list()
        below = (cells[what] - cells[f"{what}_low"]).to_list()
        return {"array": above, "arrayminus": below, "thickness": 1, "width": 3}

    return go.Scatter(
        x=cells["lost"],
        y=cells["exact"],
        error_x=reach("lost"),
        error_y=reach("exact"),
        mode="lines+markers+text" if cells.height > 1 else "markers",
        text=[f"{value:g}" for value in cells["strength"]],
        textposition="top center",
        name=formats.plain(name),
        line={"color": colour(name), "dash": "dot" if "+lora" in name else "solid"},
        marker={"size": 11, "symbol": "x" if name.startswith("none") else "circle"},
        hovertemplate="strength %{text}<br>exact %{y:.3f}<br>forgetting %{x:.3f}<extra></extra>",
    )


def ledger(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """Forgetting by retained set: a group of bars per set, one bar per training."""
    table = rows.filter(pl.col("metric").is_in(["forgetting", "probe_forgetting"]))
    if table.is_empty():
        raise Missing(f"This run has no ledger: {RUN} measures it on --retain.")
    figure = go.Figure()
    for (name, strength), cells in table.group_by(["regulariser", "strength"], maintain_order=True):
        means = cells.group_by(["probe", "metric"], maintain_order=True).agg(pl.col("value").mean())
        words = {"forgetting": "loss", "probe_forgetting": "probe"}
        figure.add_trace(
            go.Bar(
                x=[f"{p}<br>{words[m]}" for p, m in means.select("probe", "metric").iter_rows()],
                y=means["value"],
                name=formats.plain(f"{name} {strength:g}"),
                marker={"color": colour(str(name))},
            )
        )
    figure.update_yaxes(title="lost: nats of loss, share of probe accuracy")
    return theme.finish(
        figure,
        title="The ledger: what was forgotten, set by set",
        caption="Rise of the language loss on held-out texts of each retained set, and fall of the "
        "accuracy of a probe on the last layer where the set has labels. Below 0 nothing was "
        "forgotten.",
    )


def digits(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """Exact match by digits, operator and carries, and beyond the range of training."""
    table = rows.filter((pl.col("stage") == "after") & (pl.col("metric") == "exact_match"))
    if table.is_empty():
        raise Missing(f"This run has no answers to look at: {RUN} gives some.")
    skill = str(table["skill"][0])
    figure = go.Figure()
    for (name, strength), cells in table.group_by(["regulariser", "strength"], maintain_order=True):
        means = cells.group_by("probe", maintain_order=True).agg(
            pl.col("value", "low", "high").mean()
        )
        figure.add_trace(
            go.Scatter(
                x=[probe.removeprefix(f"{skill} ") for probe in means["probe"]],
                y=means["value"],
                error_y={
                    "array": (means["high"] - means["value"]).to_list(),
                    "arrayminus": (means["value"] - means["low"]).to_list(),
                    "thickness": 1,
                },
                mode="markers",
                name=formats.plain(f"{name} {strength:g}"),
                marker={"color": colour(str(name)), "size": 9},
            )
        )
    figure.update_yaxes(title="exact match", range=[-0.02, 1.05])
    return theme.finish(
        figure,
        title="Which problems are solved",
        caption="Exact match on held-out problems by digits of the longer operand, operator and "
        "carries, with 95 % intervals; test is all of them, beyond lies outside the range of "
        "training. Answers that are no number count as wrong.",
    )


def learning(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """Learning curves: exact match on dev problems, loss on retained texts, by step."""
    curves = rows.filter((pl.col("stage") == "training") & (pl.col("probe") == "curve"))
    metrics = [m for m in ("exact_match", "retained_loss", "skill") if m in curves["metric"]]
    if not metrics:
        raise Missing(f"This run has no learning curves: {RUN} draws them.")
    words = {
        "exact_match": "exact match on dev",
        "retained_loss": "loss on retained texts",
        "skill": "loss on training problems",
    }
    figure = make_subplots(rows=1, cols=len(metrics), subplot_titles=[words[m] for m in metrics])
    for column, metric in enumerate(metrics, start=1):
        cells = curves.filter(pl.col("metric") == metric).drop_nulls("value")
        for (name, strength, seed), line in cells.group_by(
            ["regulariser", "strength", "seed"], maintain_order=True
        ):
            trace = go.Scatter(
                x=line["step"],
                y=line["value"],
                mode="lines+markers",
                name=formats.plain(f"{name} {strength:g}"),
                legendgroup=f"{name} {strength}",
                showlegend=column == 1 and seed == cells["seed"].min(),
                line={"color": colour(str(name))},
                opacity=0.85,
            )
            figure.add_trace(trace, row=1, col=column)
    figure.update_xaxes(title="step")
    return theme.finish(
        figure,
        title="How it was learned, and when the rest went",
        caption="At every evaluation: the share of dev problems solved, the language loss on some "
        "retained texts that are used for nothing else, and the mean loss on training problems "
        "since the evaluation before. One line per training.",
    )


def heat(stage: str, title: str, caption: str, missing: str) -> Callable[..., go.Figure]:
    """A figure function: layer x module, one panel per training or Fisher."""

    def draw(rows: pl.DataFrame, record: Drawable) -> go.Figure:
        table = rows.filter((pl.col("stage") == stage) & pl.col("probe").str.contains("/"))
        if table.is_empty():
            raise Missing(missing)
        panels = {
            formats.plain(_panel(*key)): cells
            for key, cells in table.group_by(
                ["regulariser", "strength", "metric"], maintain_order=True
            )
        }
        figure = make_subplots(
            rows=1, cols=len(panels), subplot_titles=list(panels), shared_yaxes=True
        )
        for column, cells in enumerate(panels.values(), start=1):
            figure.add_trace(_heat_map(cells), row=1, col=column)
        figure.update_layout(coloraxis={"colorscale": theme.SEQUENTIAL})
        figure.update_yaxes(title="layer", col=1)
        return theme.finish(figure, title=title, caption=caption, height=430)

    return draw


def _panel(regulariser: Any, strength: Any, metric: Any) -> str:
    return str(metric) if strength is None else f"{regulariser} {strength:g}"


def _heat_map(cells: pl.DataFrame) -> go.Heatmap:
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


FIGURES: dict[str, Callable[[pl.DataFrame, Drawable], go.Figure]] = {
    "pareto": pareto,
    "ledger": ledger,
    "digits": digits,
    "learning": learning,
    "fisher": heat(
        "fisher",
        "Where the Fisher lies",
        "The share of the Fisher's sum in each part of each layer: 0 are the embeddings, behind "
        "the last block stand the final norm and the head. Where two Fishers are bright in the "
        "same places, the skills want the same weights.",
        f"This run has no Fisher: cutaway fisher makes one, {RUN} --clash two.",
    ),
    "drift": heat(
        "drift",
        "Which weights moved",
        "How far each part of each layer moved from the base, relative to its length. A "
        "regulariser that holds weights shows as a darker panel.",
        f"This run has moved no weights: {RUN} trains.",
    ),
    "top": clash_top,
    "weights": weight_map,
}
