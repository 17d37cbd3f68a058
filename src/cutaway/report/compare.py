"""A figure that compares runs: the score of each with its interval and best baseline."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.report import formats, theme
from cutaway.report.metric_labels import metric_axis_label
from cutaway.report.overview import overview_table
from cutaway.report.records import RecordLike

MAX_COMPARED_RUNS = 40


def compare_runs(records: Sequence[RecordLike]) -> go.Figure:
    """One line per run, in the given order; runs of another metric than the first are omitted."""
    listed = overview_table(records).filter(pl.col("score").is_not_null())
    if listed.is_empty():
        raise Missing("None of these runs names a score in its summary.")
    metric = listed["metric"][0]
    same = listed.filter(pl.col("metric") == metric) if metric else listed
    shown = same.head(MAX_COMPARED_RUNS).to_dicts()[::-1]
    names = _run_labels(shown)
    figure = go.Figure([_baseline(shown, names), _scores(shown, names)])
    figure.update_xaxes(title=metric_axis_label(metric or "score"), showgrid=True)
    figure.update_yaxes(showgrid=False, type="category")
    omitted = listed.height - len(shown)
    more = f" {omitted} more not shown (another metric, or too many)." if omitted else ""
    return theme.finish_figure(
        figure,
        title="Score of each run",
        caption="Each dot is a run's score with its 95 % interval; the grey diamond is its "
        "best baseline without a model. Overlapping intervals neither show nor exclude a "
        f"difference; scores on different data are not comparable.{more}",
        height=170 + 30 * len(shown),
    )


def _run_labels(lines: Sequence[dict[str, Any]]) -> list[str]:
    """A label per run; runs of the same model and data are distinguished by their address."""
    labels = [
        f"{formats.shorten(c['model'], 20)} on {formats.shorten(c['data'], 18)}" for c in lines
    ]
    return [
        formats.figure_label(f"{name} ({c['address'][:4]})" if labels.count(name) > 1 else name)
        for name, c in zip(labels, lines, strict=True)
    ]


def _scores(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> go.Scatter:
    known = [(c["score"], c["low"], c["high"]) for c in lines]
    return go.Scatter(
        x=[score for score, _, _ in known],
        y=list(names),
        error_x={
            "array": [high - score if high is not None else 0 for score, _, high in known],
            "arrayminus": [score - low if low is not None else 0 for score, low, _ in known],
            "thickness": 2,
            "width": 5,
        },
        mode="markers",
        name="score",
        marker={"size": 10, "color": theme.PALETTE[0]},
        customdata=[(c["address"], c["where"], c["low"], c["high"]) for c in lines],
        meta={"columns": ["address", "where", "low", "high"]},
        hovertext=[f"{formats.interval(*k)}<br>{formats.figure_label(c['where'])}"
                   for k, c in zip(known, lines, strict=True)],
        hovertemplate="<b>%{y}</b><br>%{hovertext}<extra></extra>",
    )  # fmt: skip


def _baseline(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> go.Scatter:
    return go.Scatter(
        x=[c["baseline"] for c in lines],
        y=list(names),
        mode="markers",
        name="best baseline",
        marker={"size": 9, "color": theme.NEUTRAL, "symbol": "diamond"},
        hovertemplate="<b>%{y}</b><br>baseline %{x:.3f}<extra></extra>",
    )
