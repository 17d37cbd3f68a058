"""The Pareto figure, what a skill gains and costs, and the ledger of what was forgotten."""

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.measure.intervals import over_seeds
from cutaway.methods.inject.figure_styles import (
    TrainingStyle,
    error_bars,
    marker_symbol,
    regulariser_colour,
    training_styles,
)
from cutaway.methods.inject.pareto import interval_columns, pareto_points, row_interval
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

COMMAND = "cutaway inject"
KINDS = {"forgetting": "loss", "probe_forgetting": "probe", "finetune_forgetting": "fine-tune"}
PANELS = {
    ("loss",): "language loss (nats)",
    ("probe", "fine-tune"): "scores of probes and fine-tunings",
}
KEYS = ["regulariser", "strength"]
HOVER = "<br>exact %{y:.3f}<br>forgetting %{x:.3f}<extra></extra>"


def pareto(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Exact match against forgetting: one point per strength, a line per regulariser."""
    points = pareto_table(rows)
    if points.is_empty():
        raise Missing(f"This run has no trainings to compare: {COMMAND} --regulariser none,ewc.")
    by_seed = [
        pareto_table(part).with_columns(seed=pl.lit(part["seed"][0]))
        for part in rows.drop_nulls("seed").partition_by("seed", maintain_order=True)
    ]
    seeds, figure = pl.concat(by_seed), go.Figure()
    if points.height > 1:
        figure.add_trace(_pareto_front(points))
    for (name,), cells in points.group_by(["regulariser"], maintain_order=True):
        figure.add_trace(_pareto_line(str(name), cells.sort("strength")))
        each = seeds.filter(pl.col("regulariser") == name)
        if each.height > cells.height:
            figure.add_trace(_seed_points(str(name), each))
    figure.update_xaxes(title="forgetting: rise of the loss on retained texts (nats)")
    figure.update_yaxes(title="exact match on test questions", range=[-0.02, 1.08])
    return theme.finish_figure(
        figure,
        title="Skill gained against loss on retained texts",
        caption="Each large point is one strength: the mean over seeds with its 95 % interval "
        "(over seeds, or over texts and questions if there is only one seed). Small points are "
        "single seeds, hollow ones adapters. Up and to the left is better; the dotted steps are "
        "the Pareto front. none is plain training.",
        height=460,
    )


def pareto_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The Pareto points, one line each."""
    points = pareto_points(rows.iter_rows(named=True))
    names = ("exact_match", "forgetting", "log_rmse", "lm_loss", *list(KINDS)[1:])
    numbers = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    schema = {"regulariser": pl.String} | dict.fromkeys(["strength", *numbers], pl.Float64)
    return pl.DataFrame([{name: p.get(name) for name in schema} for p in points], schema=schema)


def _pareto_front(points: pl.DataFrame) -> go.Scatter:
    """Steps through the points that no other point dominates."""
    ranked = points.sort("forgetting", "exact_match", descending=[False, True])
    exact = pl.col("exact_match")
    best = ranked.filter(exact > exact.cum_max().shift(1).fill_null(-1))
    return go.Scatter(
        x=[*best["forgetting"], points["forgetting"].max()],
        y=[*best["exact_match"], best["exact_match"].max()],
        mode="lines",
        name="Pareto front",
        line={"color": theme.NEUTRAL, "width": 1, "dash": "dot", "shape": "hv"},
        hoverinfo="skip",
    )


def _pareto_line(name: str, cells: pl.DataFrame) -> go.Scatter:
    plain = name.startswith("none")
    return go.Scatter(
        x=cells["forgetting"],
        y=cells["exact_match"],
        error_x={**error_bars(cells, "forgetting"), "width": 3},
        error_y={**error_bars(cells, "exact_match"), "width": 3},
        mode="markers" if plain else "lines+markers+text",
        text=[f"{value:g}" for value in cells["strength"]],
        textposition="top center",
        name=formats.figure_label(name),
        line={"color": regulariser_colour(name), "dash": "dot" if "+lora" in name else "solid"},
        marker={"size": 11, "symbol": marker_symbol(name, "x" if plain else "circle")},
        hovertemplate=f"strength %{{text}}{HOVER}",
    )


def _seed_points(name: str, cells: pl.DataFrame) -> go.Scatter:
    return go.Scatter(
        x=cells["forgetting"],
        y=cells["exact_match"],
        mode="markers",
        name=formats.figure_label(name),
        showlegend=False,
        marker={
            "size": 5,
            "color": regulariser_colour(name),
            "opacity": 0.6,
            "symbol": marker_symbol(name, "circle"),
        },
        text=[f"strength {s:g}, seed {n}" for s, n in cells.select("strength", "seed").iter_rows()],
        hovertemplate=f"%{{text}}{HOVER}",
    )


def ledger(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Forgetting by retained set and task: a group of bars per set, one bar per training."""
    table, styles = ledger_table(rows), training_styles(rows)
    if table.is_empty():
        raise Missing(f"This run has no ledger: {COMMAND} measures it on --retain.")
    panels = [kinds for kinds in PANELS if not table.filter(pl.col("kind").is_in(kinds)).is_empty()]
    figure = make_subplots(
        rows=1, cols=len(panels), subplot_titles=[PANELS[kinds] for kinds in panels]
    )
    for column, kinds in enumerate(panels, start=1):
        shown = table.filter(pl.col("kind").is_in(kinds))
        for (name, strength), cells in shown.group_by(KEYS, maintain_order=True):
            bar = _bar(styles[str(name), float(str(strength))], cells, first=column == 1)
            figure.add_trace(bar, row=1, col=column)
    figure.update_yaxes(title="forgetting", col=1)
    return theme.finish_figure(
        figure,
        title="Forgetting by retained set and task",
        caption="Rise of the language loss on test texts of each retained set; fall of the "
        "accuracy of a probe on the last layer for labelled sets; fall of the score after "
        "fine-tuning on "
        "each retained task. Mean over seeds with 95 % intervals; values below 0 mean no "
        "forgetting. Hatched bars are adapters.",
    )


def ledger_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Forgetting of each training, set and kind, averaged over seeds."""
    keys = [*KEYS, "probe", "kind"]
    lost = rows.filter(pl.col("metric").is_in(list(KINDS))).drop_nulls("value")
    lost = lost.with_columns(pl.col("metric").replace(KINDS).alias("kind"))
    lines = []
    for key, cells in lost.group_by(keys, maintain_order=True):
        seeds = cells.partition_by("seed", maintain_order=True)
        mean = over_seeds([[row_interval(r) for r in s.iter_rows(named=True)] for s in seeds])
        value, low, high = interval_columns("value", mean).values()
        found = {"value": value, "seeds": len(seeds), "low": low, "high": high}
        lines.append(dict(zip(keys, key, strict=True)) | found)
    schema = {"regulariser": pl.String, "strength": pl.Float64, "probe": pl.String}
    schema |= {"kind": pl.String, "value": pl.Float64, "seeds": pl.Int64}
    return pl.DataFrame(lines, schema=schema | {"low": pl.Float64, "high": pl.Float64})


def _bar(style: TrainingStyle, cells: pl.DataFrame, *, first: bool) -> go.Bar:
    names = cells.select("probe", "kind").iter_rows()
    return go.Bar(
        x=[f"{formats.figure_label(probe)}<br>{kind}" for probe, kind in names],
        y=cells["value"],
        error_y=error_bars(cells),
        name=style.name,
        legendgroup=style.name,
        showlegend=first,
        marker={"color": style.colour, "pattern": {"shape": style.hatch}},
    )
