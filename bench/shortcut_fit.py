"""Fitting all layer-to-layer maps: ours against one scikit-learn regression per pair.

The regression of the reference takes the same time for every pair (same shapes, one SVD each), so
one pair is timed in each round and counted for all, which is said in the table. Both sides run in
float32, as states come, and once more in float64. Ratios are those of the quickest rounds: two
threads that share two cores with anything else wait for each other, which only ever adds time.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.linear_model import LinearRegression

from bench.report import row, spread, told
from cutaway.methods.shortcut.maths.fit import fit_shortcuts
from cutaway.methods.shortcut.maths.moments import (
    MomentAccumulator,
    StatePair,
    layer_pairs,
    moments_bytes,
)

LAYERS, WIDTH, ROWS = 12, 768, 9000


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Times, agreement with float64 lstsq, memory."""
    width, count = (64, 600) if quick else (WIDTH, rows or ROWS)
    states, pairs = layers_of(count, width), layer_pairs(LAYERS)
    took: dict[str, list[float]] = {}
    for _ in range(1 if quick else min(rounds, 3)):
        for name, way in ways(states, pairs).items():
            start = time.perf_counter()
            way()
            took.setdefault(name, []).append(time.perf_counter() - start)
    worst = agreement(states)
    shape = f"{LAYERS + 1} layers x {width} x {count:,} rows, {len(pairs)} pairs"
    return {
        "title": "Fitting all shortcuts",
        "text": f"{shape}; two coordinates are a hundred times the others. One pair of "
        "scikit-learn's LinearRegression is timed in each round and counted for all pairs. "
        "Ratios are those of the quickest rounds. "
        f"Threads: {torch.get_num_threads()}. " + arithmetic(count, width, len(pairs)),
        "table": [
            *(against(took, *names, pairs=len(pairs)) for names in COMPARED),
            row("all pairs against the bare products of the same size",
                told(spread(took["ours"]), "s"),
                told(spread(took["products"]), "s"), ratio(took, "ours", "products"), "<= 2x",
                ratio(took, "ours", "products") <= 2),
            row("predictions against float64 lstsq, worst coordinate", f"{worst:.1e}",
                bar="<= 1e-4", met=worst <= 1e-4),
            row("memory told in advance", f"{moments_bytes(pairs, width) / 2**20:.0f} MB"),
        ],
        "measured": {name: spread(values) for name, values in took.items()},
    }  # fmt: skip


COMPARED = (
    ("ours", "regression", "float32, as the reference does it", ">= 50x"),
    ("ours", "regression with intercept", "float32, scikit-learn's defaults", "-"),
    ("ours, precise", "regression in float64", "float64 on both sides", "-"),
    ("ours", "regression in float64", "ours in float32, scikit-learn in float64", "-"),
)


def ways(
    states: dict[int, torch.Tensor], pairs: list[StatePair]
) -> dict[str, Callable[[], object]]:
    """Everything that is timed, by name."""
    exact = {layer: rows.double() for layer, rows in (e for e in states.items() if e[0] in ENDS)}
    return {
        "ours": partial(ours, states, pairs),
        "ours, precise": partial(ours, states, pairs, cross=torch.float64),
        "products": partial(products, states, pairs),
        "regression": partial(regression, states, False),
        "regression with intercept": partial(regression, states, True),
        "regression in float64": partial(regression, exact, False),
    }


ENDS = (0, LAYERS)
"""The pair of layers that is timed for all."""


def ratio(took: dict[str, list[float]], one: str, other: str) -> float:
    """How many times longer the first takes, each in its quickest round."""
    return min(took[one]) / min(took[other])


def against(
    took: dict[str, list[float]], mine: str, theirs: str, how: str, bar: str, *, pairs: int
) -> dict[str, Any]:
    """A line of the table: all pairs here, one pair there times their number."""
    times = pairs * ratio(took, theirs, mine)
    return row(
        f"all pairs against LinearRegression per pair: {how}", told(spread(took[mine]), "s"),
        f"{pairs} x {told(spread(took[theirs]), 's')}", times, bar,
        times >= 50 if bar != "-" else None,
    )  # fmt: skip


def arithmetic(rows: int, width: int, pairs: int) -> str:
    """Why the ratio is what it is, in operations."""
    one = 2 * rows * width**2
    mine = (pairs + LAYERS / 2) * one
    # gelsd: QR of the rows, its transpose on as many targets, then an SVD of the triangle.
    theirs = one * (1 - width / (3 * rows)) + 2 * one * (1 - width / (2 * rows)) + 12 * width**3
    return (
        f"In operations: a pair costs us one product of {one / 1e9:.1f} G, {mine / 1e12:.2f} T in "
        f"all; a regression costs {theirs / 1e9:.1f} G (QR, the targets, SVD of the triangle), "
        f"{pairs * theirs / 1e12:.2f} T in all: {pairs * theirs / mine:.1f} times as many. What is "
        "beyond that factor comes from how quickly each is done."
    )


def layers_of(rows: int, width: int, *, seed: int = 0) -> dict[int, torch.Tensor]:
    """A residual stream: each layer adds a bent mix of the last; outliers from the start."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=rng)
    hidden[:, :2] *= 100
    hidden[:, 1] += 300
    states = {0: hidden}
    for layer in range(1, LAYERS + 1):
        mix = torch.randn(width, width, generator=rng) / width**0.5
        states[layer] = states[layer - 1] + 0.3 * torch.tanh(states[layer - 1] @ mix)
    return states


def ours(
    states: dict[int, torch.Tensor],
    pairs: list[StatePair],
    batch: int = 256,
    cross: torch.dtype = torch.float32,
) -> dict[Any, Any]:
    """Every map, the states coming in as small batches."""
    gatherer = MomentAccumulator(pairs, cross=cross)
    for start in range(0, len(states[0]), batch):
        gatherer.add({layer: rows[start : start + batch] for layer, rows in states.items()})
    moments = gatherer.moments()
    return {i: fit_shortcuts(moments, i, [t for s, t in pairs if s == i]) for i in range(LAYERS)}


def products(states: dict[int, torch.Tensor], pairs: list[Any]) -> None:
    """The same matrix products and nothing else, in float32."""
    blocks = [(i, i) for i in range(LAYERS)] + pairs
    out = torch.empty(states[0].shape[1], states[0].shape[1])
    for source, target in blocks:
        torch.mm(states[source].T, states[target], out=out)


def regression(states: dict[int, torch.Tensor], intercept: bool) -> None:
    """One pair the reference's way."""
    source, target = (states[layer].numpy() for layer in ENDS)
    LinearRegression(fit_intercept=intercept).fit(source, target)


def agreement(states: dict[int, torch.Tensor]) -> float:
    """The largest relative difference of a predicted coordinate from float64 lstsq's."""
    gatherer = MomentAccumulator([(0, LAYERS)])
    gatherer.add({0: states[0], LAYERS: states[LAYERS]})
    jump = fit_shortcuts(gatherer.moments(), 0, [LAYERS])[LAYERS]
    x, y = states[0].double(), states[LAYERS].double()
    exact = x @ torch.linalg.lstsq(x, y).solution
    return float(((jump(x) - exact).norm(dim=0) / exact.norm(dim=0)).max())
