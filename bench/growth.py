"""How time and memory grow with rows, layers and width, on a log-log plot with its exponents."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch

from bench.extract_memory import measure_reading
from bench.extract_setup import make_small
from bench.report import row
from cutaway.core.errors import CutawayError
from cutaway.methods.shortcut.moments import Gatherer, layer_pairs
from cutaway.methods.solvers import logistic_path
from cutaway.models.load import open_model
from cutaway.report import theme
from cutaway.report.export import write_pictures

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
# What stands still while one of them grows.
STILL = {"rows": 500, "layers": 4, "width": 128}
READING: dict[str, tuple[int, ...]] = {
    "rows": (500, 1_000, 2_000, 4_000),
    "layers": (2, 4, 8, 16),
    "width": (128, 256, 512),
}
SOLVING: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 2_000, 4_000, 8_000),
    "width": (64, 128, 256, 512),
}
Point = dict[str, float]


def run(quick: bool, rounds: int = 3) -> dict[str, Any]:
    """Seconds and megabytes at every size, the fitted exponents, and the plot."""
    few = 2 if quick else None
    path_seconds(200, 16), product_seconds(200, 16)  # the first call warms up
    found: dict[str, list[Point]] = {}
    for axis, sizes in READING.items():
        found[f"reading, {axis}"] = [reading(axis, size) for size in sizes[:few]]
    for name, way in (("probe path", path_seconds), ("products of all layers", product_seconds)):
        for axis, sizes in SOLVING.items():
            found[f"{name}, {axis}"] = [
                timed(way, axis, size, 1 if quick else min(rounds, 3)) for size in sizes[:few]
            ]
    drawn = "not drawn in a quick run" if quick else draw(found)
    return {
        "title": "Cost growth",
        "text": "Reading: all layers of a random llama-shaped model into an empty cache, "
        f"{STILL['rows']} rows, {STILL['layers']} layers of {STILL['width']} but for the one that "
        "grows; memory is what stands above the open model, a process for each point. The probe's "
        "logistic path (10 C) and the products of 8 layers on random numbers, 2,000 rows "
        "of 128 but for the one that grows. An exponent of 1 is linear growth, 0 none; it is the "
        f"slope of the least-squares line through the logarithms. Picture: {drawn}.",
        "table": [line for name, points in found.items() for line in lines(name, points)],
        "measured": found,
    }


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log(cost) over log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-9)), 1)[0])


def lines(name: str, points: list[Point]) -> list[dict[str, Any]]:
    """Time and, where it was measured, memory: smallest, largest, exponent."""
    sizes = [p["size"] for p in points]
    made = []
    for cost, unit in (("seconds", "s"), ("extra_mb", "MB")):
        if cost in points[0]:
            costs = [p[cost] for p in points]
            what = f"{name} {sizes[0]:,.0f}..{sizes[-1]:,.0f}: {cost.replace('extra_mb', 'memory')}"
            made.append(
                row(what, f"{costs[0]:,.3g}..{costs[-1]:,.3g} {unit}")
                | {"exponent": round(exponent(sizes, costs), 2)}
            )
    return made


def reading(axis: str, size: int) -> Point:
    """Seconds and megabytes of one extraction, from a process that does nothing else."""
    shape = {**STILL, axis: size}
    print(f"   reading, {axis} {size:,}", file=sys.stderr)
    words = [sys.executable, "-m", "bench.growth", *(str(shape[a]) for a in READING)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[1:])} failed: {done.stderr[-800:]}")
    return {"size": size, **json.loads(done.stdout.splitlines()[-1])}


def watched(rows: int, layers: int, width: int) -> Point:
    """One extraction of a model made on the spot."""
    with tempfile.TemporaryDirectory() as work:
        folder = make_small(Path(work) / "model", layers, width)
        found = measure_reading(open_model(str(folder), device="cpu", check=False), rows)
    return {"seconds": found["seconds"], "extra_mb": found["extra_mb"]}


def timed(way: Callable[[int, int], float], axis: str, size: int, rounds: int) -> Point:
    """The median seconds of a way that takes rows and width."""
    shape = {"rows": 2_000, "width": 128, axis: size}
    seconds = sorted(way(shape["rows"], shape["width"]) for _ in range(rounds))
    return {"size": size, "seconds": seconds[len(seconds) // 2]}


def path_seconds(rows: int, width: int) -> float:
    """The logistic path over ten strengths, on numbers that tell the label."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(rows, width, generator=rng)
    y = (x[:, 0] + torch.randn(rows, generator=rng) > 0).long()
    start = time.perf_counter()
    logistic_path(x, y, strengths=np.logspace(-4, 4, 10).tolist())
    return time.perf_counter() - start


def product_seconds(rows: int, width: int, blocks: int = 7) -> float:
    """The cross-products of all pairs of layers, as `shortcut fit` gathers them."""
    rng = torch.Generator().manual_seed(0)
    states = {layer: torch.randn(rows, width, generator=rng) for layer in range(blocks + 1)}
    gatherer = Gatherer(layer_pairs(blocks))
    start = time.perf_counter()
    gatherer.add(states)
    gatherer.moments()
    return time.perf_counter() - start


def draw(found: Mapping[str, list[Point]]) -> str:
    """The log-log plot in docs/pictures; its name, or why there is none."""
    figure = go.Figure()
    shades = theme.colours(list(found))
    for name, points in found.items():
        sizes, seconds = [p["size"] for p in points], [p["seconds"] for p in points]
        label = f"{name}: {exponent(sizes, seconds):.2f}"
        figure.add_scatter(
            x=sizes, y=seconds, name=label, mode="lines+markers", line_color=shades[name]
        )
    figure.update_xaxes(type="log", title="size: rows, layers or width")
    figure.update_yaxes(type="log", title="seconds")
    theme.finish(
        figure,
        title="Time against size",
        caption="Both axes are logarithmic: a straight line of slope 1 is linear growth. The "
        "number behind a name is its slope.",
    )
    try:
        made = write_pictures({"growth": figure}, PICTURES, formats=("svg",))
    except CutawayError as error:
        return f"none ({error})"
    return f"![time against size](pictures/{made[0].name})"


if __name__ == "__main__":
    print(json.dumps(watched(*map(int, sys.argv[1:]))))
