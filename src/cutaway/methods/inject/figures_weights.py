"""Fishers at the largest entries of one of them, and weights as points on a map.

Both figures of the paper are drawn from `inject.json`, which is beside `result.json`.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import CutawayError, Missing
from cutaway.methods.inject.rows import DETAILS_FILE
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns, single_runs
from cutaway.store.files import read_json

NOT_KEPT = "This run has no {what}: use cutaway inject --clash or cutaway fisher --against."


def fisher_at_top_entries(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Fishers of other texts at the entries where this one is largest."""
    panels = _load_details(record).get("tops")
    if not panels:
        raise Missing(NOT_KEPT.format(what="largest entries of Fishers"))
    height, width = -(-len(panels) // 2), min(len(panels), 2)
    titles = [panel["where"] for panel in panels]
    figure = make_subplots(rows=height, cols=width, subplot_titles=titles, vertical_spacing=0.16)
    for i, panel in enumerate(panels):
        for trace in _top_curves(panel["curves"], shown=i == 0):
            figure.add_trace(trace, row=i // 2 + 1, col=i % 2 + 1)
    first = formats.figure_label(next(iter(panels[0]["curves"])))
    figure.update_xaxes(title=f"entries, sorted by the Fisher of {first}", row=height)
    figure.update_yaxes(type="log", exponentformat="power")
    figure.update_yaxes(title="Fisher", col=1)
    return theme.finish_figure(
        figure,
        title="Are the most important weights important to other texts too?",
        caption=f"Each point is one weight, sorted by its Fisher information for {first}, over all "
        "layers and within the first, middle and last block; lines are moving averages. Where "
        "another line is far lower, these weights can change without much forgetting.",
        height=300 * height + 140,
    )


def _top_curves(curves: dict[str, Any], *, shown: bool) -> list[go.Scatter]:
    """The points of each Fisher and their moving average."""
    traces = []
    for (name, curve), colour in zip(curves.items(), cycle(theme.PALETTE), strict=False):
        shared = {
            "x": list(range(1, len(curve["values"]) + 1)),
            "legendgroup": name,
            "name": formats.figure_label(name),
        }
        dots, line = {"size": 3, "color": colour, "opacity": 0.35}, {"color": colour, "width": 3}
        traces += [
            go.Scatter(y=curve["values"], mode="markers", marker=dots, showlegend=False, **shared),
            go.Scatter(y=curve["mean"], mode="lines", line=line, showlegend=shown, **shared),
        ]
    return traces


def weight_map(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Rows of attention weights of the base and of every trained model, as points."""
    maps = _load_details(record).get("maps")
    if not maps:
        raise Missing(NOT_KEPT.format(what="maps of weights"))
    layers = sorted({one["layer"] for one in maps})
    ways = [way for way in ("pca", "tsne") if any(one["way"] == way for one in maps)]
    titles = [f"layer {layer}, {way}" for way in ways for layer in layers]
    figure = make_subplots(
        rows=len(ways), cols=len(layers), subplot_titles=titles, vertical_spacing=0.1
    )
    for one in maps:
        row, column = ways.index(one["way"]) + 1, layers.index(one["layer"]) + 1
        for trace in _map_points(one["points"], shown=row == column == 1):
            figure.add_trace(trace, row=row, col=column)
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(showticklabels=False)
    return theme.finish_figure(
        figure,
        title="Weights before and after training",
        caption="Rows of an attention weight of the first, middle and last block, of the base "
        "model, of every training (its first seed) and of the base fine-tuned on each retained "
        "task, in one projection. Points of rows that did not change coincide.",
        height=300 * len(ways) + 120,
    )


def _map_points(points: dict[str, Any], *, shown: bool) -> list[go.Scatter]:
    first_seed: dict[str, Any] = {}
    for name, pairs in points.items():
        first_seed.setdefault(name.partition("-seed")[0], pairs)
    return [
        go.Scatter(
            x=[x for x, _ in pairs],
            y=[y for _, y in pairs],
            mode="markers",
            name=formats.figure_label(name),
            legendgroup=name,
            showlegend=shown,
            marker={
                "size": 7 if name == "base" else 5,
                "symbol": "circle-open" if name == "base" else "circle",
                "color": theme.PALETTE[i % len(theme.PALETTE)],
            },
        )
        for i, (name, pairs) in enumerate(first_seed.items())
    ]


def _load_details(record: RunOrRuns) -> dict[str, Any]:
    """The content of `inject.json`; empty where a run has none."""
    for one in single_runs(record) if record is not None else ():
        try:
            details: dict[str, Any] = read_json(Path(one.path) / DETAILS_FILE)
            return details
        except CutawayError:
            continue
    return {}
