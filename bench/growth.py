"""How time and memory grow with rows, layers and width, on a log-log plot with its exponents."""

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from bench.extract_memory import measure_reading, memory_mb, reset_peak
from bench.extract_setup import make_small
from bench.report import row
from cutaway.core.errors import CutawayError
from cutaway.methods.shortcut.maths.moments import MomentAccumulator, layer_pairs
from cutaway.models.load import open_model
from cutaway.report import theme
from cutaway.report.export import write_pictures
from cutaway.solvers.logistic import logistic_path

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
AXES = ("rows", "layers", "width")
COSTS = {"seconds": "s", "extra_mb": "MB"}
Point = dict[str, float]
Sizes = dict[str, tuple[int, ...]]

# What stands still while one of them grows, and how far each grows.
STILL: dict[str, dict[str, int]] = {
    "reading": {"rows": 1_000, "layers": 4, "width": 128},
    "probe path": {"rows": 4_000, "layers": 1, "width": 128},
    "products": {"rows": 4_000, "layers": 8, "width": 128},
}
GROWING: dict[str, Sizes] = {
    "reading": {
        "rows": (1_000, 2_000, 4_000, 8_000),
        "layers": (2, 4, 8, 16),
        "width": (128, 256, 512),
    },
    "probe path": {"rows": (2_000, 4_000, 8_000, 16_000), "width": (64, 128, 256, 512)},
    "products": {
        "rows": (2_000, 4_000, 8_000, 16_000),
        "layers": (4, 8, 16, 32),
        "width": (64, 128, 256, 512),
    },
}


def run(quick: bool) -> dict[str, Any]:
    """Seconds and megabytes at every size, the fitted exponents, and the plot."""
    few = 2 if quick else None
    found = {
        (way, axis): [measured(way, axis, size) for size in sizes[:few]]
        for way, axes in GROWING.items()
        for axis, sizes in axes.items()
    }
    drawn = "not drawn in a quick run" if quick else draw(found)
    return {
        "title": "Cost growth",
        "text": [
            "Reading: all layers of a random llama-shaped model into an empty cache. Probe path: "
            "the logistic path over 10 C on random numbers. Products: all that `shortcut fit` "
            "adds up for every pair of layers. "
            f"What doesn't grow: {_still()}. A process for each point; processor time on one "
            "thread. Memory is the high-water mark above what stood when the model was open, or "
            "the numbers made. An exponent of 1 is linear growth, 0 none; it is the slope of the "
            "least-squares line through the logarithms.",
            drawn,
        ],
        "table": [
            line for (way, axis), found_ in found.items() for line in lines(way, axis, found_)
        ],
        "measured": {f"{way}, {axis}": points for (way, axis), points in found.items()},
    }


def _still() -> str:
    return "; ".join(
        f"{way} {shape['rows']:,} rows, {shape['layers']} layers of {shape['width']}"
        for way, shape in STILL.items()
    )


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log(cost) over log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-9)), 1)[0])


def lines(way: str, axis: str, points: list[Point]) -> list[dict[str, Any]]:
    """Time and memory: smallest, largest, exponent."""
    sizes = [p["size"] for p in points]
    made = []
    for cost, unit in COSTS.items():
        costs = [p[cost] for p in points]
        name = "time" if cost == "seconds" else "memory"
        what = f"{way}, {axis} {sizes[0]:,.0f}..{sizes[-1]:,.0f}: {name}"
        ours = f"{costs[0]:,.3g}..{costs[-1]:,.3g} {unit}"
        made.append(row(what, ours) | {"exponent": round(exponent(sizes, costs), 2)})
    return made


def measured(way: str, axis: str, size: int) -> Point:
    """Seconds and megabytes of one way at one size, from a process that does nothing else.

    A fork, which needs no second to load its libraries; on one thread, since others don't survive.
    """
    shape = {**STILL[way], axis: size}
    print(f"   {way}, {axis} {size:,}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "point.json"
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                found.write_text(json.dumps(WAYS[way](*(shape[a] for a in AXES))))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return {"size": size, **json.loads(found.read_text())}


def reading(rows: int, layers: int, width: int) -> Point:
    """One extraction of a model made on the spot."""
    with tempfile.TemporaryDirectory() as work:
        folder = make_small(Path(work) / "model", layers, width)
        found = measure_reading(open_model(str(folder), device="cpu", check=False), rows)
    return {"seconds": found["processor_seconds"], "extra_mb": found["extra_mb"]}


def probe_path(rows: int, _: int, width: int) -> Point:
    """The logistic path over ten strengths, on numbers that tell the label."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(rows, width, generator=rng)
    y = (x[:, 0] + torch.randn(rows, generator=rng) > 0).long()
    strengths = np.logspace(-4, 4, 10).tolist()
    logistic_path(x[:200], y[:200], strengths=strengths)  # the first call warms up
    return watched(lambda: logistic_path(x, y, strengths=strengths))


def products(rows: int, layers: int, width: int) -> Point:
    """The cross-products of all pairs of layers, as `shortcut fit` gathers them."""
    rng = torch.Generator().manual_seed(0)
    states = {layer: torch.randn(rows, width, generator=rng) for layer in range(layers)}

    def gather(count: int) -> None:
        gatherer = MomentAccumulator(layer_pairs(layers - 1))
        gatherer.add({layer: values[:count] for layer, values in states.items()})
        gatherer.moments()

    gather(64)
    return watched(lambda: gather(rows))


def watched(work: Callable[[], object], rounds: int = 3) -> Point:
    """The median seconds of a few rounds, and how far memory rose above where it stood."""
    reset_peak()
    base, seconds = memory_mb("VmRSS"), []
    for _ in range(rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    above = max(0.1, memory_mb("VmHWM") - base)
    return {"seconds": round(sorted(seconds)[rounds // 2], 5), "extra_mb": round(above, 1)}


WAYS: dict[str, Callable[[int, int, int], Point]] = {
    "reading": reading,
    "probe path": probe_path,
    "products": products,
}


# Lines may lie on each other; their slopes are then still apart.
SIDES = {"reading": "top left", "probe path": "bottom right", "products": "top right"}


def draw(found: Mapping[tuple[str, str], list[Point]]) -> str:
    """The log-log plot in docs/pictures; its name, or why there is none."""
    figure = picture(found)
    try:
        made = write_pictures({"growth": figure}, PICTURES, formats=("svg",))
    except CutawayError as error:
        return f"No picture: {error}"
    return f"![time and memory against rows, layers and width](pictures/{made[0].name})"


def picture(found: Mapping[tuple[str, str], list[Point]]) -> go.Figure:
    """Time above, memory below; a column for each of rows, layers and width."""
    figure = make_subplots(
        rows=2, cols=3, shared_yaxes=True, horizontal_spacing=0.04, vertical_spacing=0.1
    )
    shades = theme.assign_colours(list(WAYS))
    for (way, axis), points in found.items():
        for line, cost in enumerate(COSTS, 1):
            sizes, costs = [p["size"] for p in points], [p[cost] for p in points]
            column = AXES.index(axis) + 1
            figure.add_scatter(
                x=sizes, y=costs, row=line, col=column, mode="lines+markers+text", name=way,
                text=[""] * (len(sizes) - 1) + [f"{exponent(sizes, costs):.2f}"],
                textposition=SIDES[way], textfont_color=shades[way], line_color=shades[way],
                legendgroup=way, showlegend=(line, column) == (1, 1), cliponaxis=False,
            )  # fmt: skip
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log", dtick=1)
    for column, axis in enumerate(AXES, 1):
        ticks = sorted({p["size"] for (_, a), points in found.items() if a == axis for p in points})
        figure.update_xaxes(
            tickvals=ticks, ticktext=[f"{t:,.0f}" for t in ticks], row=2, col=column, title=axis
        )
        figure.update_xaxes(tickvals=ticks, showticklabels=False, row=1, col=column)
    figure.update_yaxes(title="processor seconds", row=1, col=1)
    figure.update_yaxes(title="MB", row=2, col=1)
    # From 1 to 3,000 MB: what hardly changes should look so.
    figure.update_yaxes(range=[0, 3.5], row=2)
    return theme.finish_figure(
        figure,
        title="Time and memory against size",
        caption="Both axes are logarithmic: a straight line of slope 1 is linear growth, a flat "
        "one none. The number at a line's end is its slope.",
        height=620,
    )
