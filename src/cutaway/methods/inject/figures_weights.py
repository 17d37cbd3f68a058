"""The reference's two figures: one Fisher at the other's largest entries, weights as points.

They are drawn from `inject.json`, which stands beside `result.json`.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import CutawayError, Missing
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns, single_runs
from cutaway.store.files import read_json

DETAILS_FILE = "inject.json"
NOT_KEPT = "This run kept no {what}: cutaway inject --clash and cutaway fisher --against keep them."


def fisher_at_top_entries(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Fishers of other texts at the entries where this one's is largest."""
    panels = _load_details(record).get("tops")
    if not panels:
        raise Missing(NOT_KEPT.format(what="top entries of Fishers"))
    down = -(-len(panels) // 2)
    across = min(len(panels), 2)
    figure = make_subplots(
        rows=down, cols=across, subplot_titles=[panel["where"] for panel in panels],
        vertical_spacing=0.16,
    )  # fmt: skip
    for i, panel in enumerate(panels):
        for trace in _top_curves(panel["curves"], shown=i == 0):
            figure.add_trace(trace, row=i // 2 + 1, col=i % 2 + 1)
    first = formats.figure_label(next(iter(panels[0]["curves"])))
    figure.update_xaxes(title=f"entries, largest for {first} first", row=down)
    figure.update_yaxes(type="log", exponentformat="power")
    figure.update_yaxes(title="Fisher", col=1)
    return theme.finish_figure(
        figure,
        title="Do the most important weights matter to the rest",
        caption=f"Each point is one weight, those first whose Fisher for {first} is largest, over "
        "all layers and within the first, middle and last block; the lines are moving averages. "
        "Where another line lies far below, these weights can be had cheaply.",
        height=300 * down + 140,
    )


def _top_curves(curves: dict[str, Any], *, shown: bool) -> list[go.Scatter]:
    """The points of each Fisher and their moving average."""
    traces = []
    for (name, curve), colour in zip(curves.items(), cycle(theme.PALETTE), strict=False):
        x, shared = list(range(1, len(curve["values"]) + 1)), {"legendgroup": name}
        dots = {"size": 3, "color": colour, "opacity": 0.35}
        line = {"color": colour, "width": 3}
        traces += [
            go.Scatter(x=x, y=curve["values"], mode="markers", marker=dots, showlegend=False,
                       name=formats.figure_label(name), **shared),
            go.Scatter(x=x, y=curve["mean"], mode="lines", line=line, showlegend=shown,
                       name=formats.figure_label(name), **shared),
        ]  # fmt: skip
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
        place = {"row": ways.index(one["way"]) + 1, "col": layers.index(one["layer"]) + 1}
        first = place == {"row": 1, "col": 1}
        for trace in _points(one["points"], shown=first):
            figure.add_trace(trace, **place)
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(showticklabels=False)
    return theme.finish_figure(
        figure,
        title="Weights before and after, as points",
        caption="Rows of an attention weight of the first, middle and last block, of the base, of "
        "every training (its first seed) and of the base fine-tuned on each retained task, on one "
        "map. Rows that stayed where they were cover each other.",
        height=300 * len(ways) + 120,
    )


def _points(points: dict[str, Any], *, shown: bool) -> list[go.Scatter]:
    first: dict[str, Any] = {}
    for name, pairs in points.items():
        first.setdefault(name.partition("-seed")[0], pairs)
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
        for i, (name, pairs) in enumerate(first.items())
    ]


def _load_details(record: RunOrRuns) -> dict[str, Any]:
    """What the run kept beside its rows; nothing where it kept nothing."""
    for one in single_runs(record) if record is not None else ():
        try:
            found: dict[str, Any] = read_json(Path(one.path) / DETAILS_FILE)
            return found
        except CutawayError:
            continue
    return {}
