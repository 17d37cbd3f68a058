"""The ledger of `inject`: what retained sets and tasks lost, and what the skill gained for it."""

from collections.abc import Sequence
from math import isnan, nan
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.measure.intervals import Interval, clip_interval, over_seeds
from cutaway.methods.inject.figure_styles import (
    TrainingStyle,
    marker_symbol,
    regulariser_colour,
    training_styles,
)
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns

COMMAND = "cutaway inject"
KINDS = {
    "forgetting": "loss",
    "probe_forgetting": "probe",
    "finetune_forgetting": "fine-tune",
}
PANELS = {
    ("loss",): "language loss (nats)",
    ("probe", "fine-tune"): "scores of probes and fine-tunes",
}
KEYS = ["regulariser", "strength"]


def pareto(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Exact match against forgetting: one point per strength, a line per regulariser."""
    points, seeds = pareto_table(rows), pareto_by_seed(rows)
    if points.is_empty():
        raise Missing(f"This run has no trainings to compare: {COMMAND} --regulariser none,ewc.")
    figure = go.Figure()
    if points.height > 1:
        figure.add_trace(_pareto_front(points))
    for (name,), cells in points.group_by(["regulariser"], maintain_order=True):
        figure.add_trace(_pareto_line(str(name), cells.sort("strength")))
        each = seeds.filter(pl.col("regulariser") == name)
        if each.height > cells.height:
            figure.add_trace(_seed_points(str(name), each))
    figure.update_xaxes(title="forgetting: rise of the loss on retained texts (nats)")
    figure.update_yaxes(title="exact match on held-out problems", range=[-0.02, 1.08])
    return theme.finish_figure(
        figure,
        title="What the skill gains, and what the rest loses",
        caption="Each large point is one strength, mean over seeds with its 95 % interval (over "
        "seeds, or over texts and problems where there is one seed); small points are single "
        "seeds, hollow ones adapters. Up and to the left is better: the dotted steps are the best "
        "trade so far, a point below them is beaten. none is plain training.",
        height=460,
    )


def pareto_by_seed(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per training: exact match, and forgetting as the mean over retained sets."""
    one, two = (
        table.group_by([*KEYS, "seed"], maintain_order=True).agg(pl.col("value").mean().alias(name))
        for name, table in _pareto_axes(rows).items()
    )
    return one.join(two, on=[*KEYS, "seed"], how="inner", maintain_order="left", nulls_equal=True)


def pareto_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per regulariser and strength: exact match and forgetting with 95 % intervals."""
    tables, found = _pareto_axes(rows), []
    for key, cells in pareto_by_seed(rows).group_by(KEYS, maintain_order=True):
        line: dict[str, Any] = dict(zip(KEYS, key, strict=True))
        for name, table in tables.items():
            mine = table.join(cells, on=[*KEYS, "seed"], how="semi", nulls_equal=True)
            span = over_seeds(_intervals(mine))
            span = clip_interval(span, 0.0, 1.0) if name == "exact" else span
            line[name] = span.mean
            for end, value in (("low", span.low), ("high", span.high)):
                line[f"{name}_{end}"] = None if isnan(value) else value
        found.append(line)
    numbers = [f"{name}{end}" for name in tables for end in ("", "_low", "_high")]
    schema = {"regulariser": pl.String} | dict.fromkeys(["strength", *numbers], pl.Float64)
    return pl.DataFrame(found, schema=schema)


def _pareto_axes(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of both axes of the Pareto figure."""
    after = rows.filter(pl.col("stage") == "after").drop_nulls("value")
    of_test = pl.col("probe").str.ends_with(" test")
    return {
        "exact": after.filter((pl.col("metric") == "exact_match") & of_test),
        "lost": after.filter(pl.col("metric") == "forgetting"),
    }


def _intervals(rows: pl.DataFrame) -> list[list[Interval]]:
    """Seed by seed, the rows as intervals."""
    return [
        [
            Interval(value, nan if low is None else low, nan if high is None else high, 0.95, 1)
            for value, low, high in cells.select("value", "low", "high").iter_rows()
        ]
        for _, cells in rows.group_by("seed", maintain_order=True)
    ]


def _pareto_front(points: pl.DataFrame) -> go.Scatter:
    """The best trade: steps over the points that no other beats."""
    ranked = points.sort("lost", "exact", descending=[False, True])
    best = ranked.filter(pl.col("exact") > pl.col("exact").cum_max().shift(1).fill_null(-1))
    return go.Scatter(
        x=[*best["lost"], points["lost"].max()],
        y=[*best["exact"], best["exact"].max()],
        mode="lines",
        name="best trade",
        line={"color": theme.NEUTRAL, "width": 1, "dash": "dot", "shape": "hv"},
        hoverinfo="skip",
    )


def _pareto_line(name: str, cells: pl.DataFrame) -> go.Scatter:
    def reach(what: str) -> dict[str, Any]:
        ends = cells.select(value=what, low=f"{what}_low", high=f"{what}_high")
        return {**interval_error_bars(ends), "width": 3}

    return go.Scatter(
        x=cells["lost"],
        y=cells["exact"],
        error_x=reach("lost"),
        error_y=reach("exact"),
        mode="lines+markers+text" if not name.startswith("none") else "markers",
        text=[f"{value:g}" for value in cells["strength"]],
        textposition="top center",
        name=formats.figure_label(name),
        line={"color": regulariser_colour(name), "dash": "dot" if "+lora" in name else "solid"},
        marker={
            "size": 11,
            "symbol": marker_symbol(name, "x" if name.startswith("none") else "circle"),
        },
        hovertemplate="strength %{text}<br>exact %{y:.3f}<br>forgetting %{x:.3f}<extra></extra>",
    )


def _seed_points(name: str, cells: pl.DataFrame) -> go.Scatter:
    return go.Scatter(
        x=cells["lost"],
        y=cells["exact"],
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
        hovertemplate="%{text}<br>exact %{y:.3f}<br>forgetting %{x:.3f}<extra></extra>",
    )


def ledger(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Forgetting by retained set and task: a group of bars per set, one bar per training."""
    books, styles = ledger_table(rows), training_styles(rows)
    if books.is_empty():
        raise Missing(f"This run has no ledger: {COMMAND} measures it on --retain.")
    panels = [kinds for kinds in PANELS if not books.filter(pl.col("kind").is_in(kinds)).is_empty()]
    figure = make_subplots(
        rows=1, cols=len(panels), subplot_titles=[PANELS[kinds] for kinds in panels]
    )
    for column, kinds in enumerate(panels, start=1):
        shown = books.filter(pl.col("kind").is_in(kinds))
        for (name, strength), cells in shown.group_by(KEYS, maintain_order=True):
            bar = _bar(styles[str(name), float(str(strength))], cells, first=column == 1)
            figure.add_trace(bar, row=1, col=column)
    figure.update_yaxes(title="lost", col=1)
    return theme.finish_figure(
        figure,
        title="The ledger: what was forgotten, set by set",
        caption="Rise of the language loss on held-out texts of each retained set; fall of a probe "
        "on the last layer where the set has labels; fall of the score that a fine-tune reaches on "
        "each retained task. Mean over seeds with 95 % intervals. Below 0 nothing was forgotten. "
        "Hatched bars are adapters.",
    )


def ledger_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The ledger as a table: each training, set and kind with what was lost, mean over seeds."""
    keys = [*KEYS, "probe", "kind"]
    lost = rows.filter(pl.col("metric").is_in(list(KINDS))).drop_nulls("value")
    lost = lost.with_columns(pl.col("metric").replace(KINDS).alias("kind"))
    found = []
    for key, cells in lost.group_by(keys, maintain_order=True):
        span = over_seeds(_intervals(cells))
        ends = {"low": span.low, "high": span.high}
        found.append(
            dict(zip(keys, key, strict=True))
            | {"value": span.mean, "seeds": cells["seed"].n_unique()}
            | {end: None if isnan(value) else value for end, value in ends.items()}
        )
    schema = {"regulariser": pl.String, "strength": pl.Float64, "probe": pl.String}
    schema |= {"kind": pl.String, "value": pl.Float64, "seeds": pl.Int64}
    return pl.DataFrame(found, schema=schema | {"low": pl.Float64, "high": pl.Float64})


def _bar(look: TrainingStyle, cells: pl.DataFrame, *, first: bool) -> go.Bar:
    return go.Bar(
        x=[
            f"{formats.figure_label(p)}<br>{k}"
            for p, k in cells.select("probe", "kind").iter_rows()
        ],
        y=cells["value"],
        error_y=interval_error_bars(cells),
        name=look.name,
        legendgroup=look.name,
        showlegend=first,
        marker={"color": look.colour, "pattern": {"shape": look.hatch}},
    )


def interval_error_bars(cells: pl.DataFrame) -> dict[str, Any]:
    """Error bars from `low` to `high`; none where a row has no interval."""
    ends: Sequence[pl.Series] = (cells["high"] - cells["value"], cells["value"] - cells["low"])
    above, below = (side.fill_null(0.0).to_list() for side in ends)
    return {"array": above, "arrayminus": below, "thickness": 1}
