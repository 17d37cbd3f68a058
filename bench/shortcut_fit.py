"""Fitting all layer-to-layer maps: ours against one scikit-learn regression per pair.

The regression of the reference takes the same time for every pair (same shapes, one SVD each), so
a few pairs are timed and the rest is counted, which is said in the table.
"""

import statistics
import time
from typing import Any

import torch
from sklearn.linear_model import LinearRegression

from bench.report import row, spread
from cutaway.methods.shortcut.fit import fit
from cutaway.methods.shortcut.moments import Gatherer, layer_pairs, moments_bytes

LAYERS, WIDTH, ROWS = 12, 768, 9000


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Times, agreement with float64 lstsq, memory."""
    width, count = (64, 600) if quick else (WIDTH, rows or ROWS)
    rounds = 1 if quick else min(rounds, 3)
    states, pairs = layers_of(count, width), layer_pairs(LAYERS)
    seconds: dict[str, list[float]] = {"ours": [], "products": [], "regression": []}
    for _ in range(rounds):
        for name, way in (("ours", ours), ("products", products), ("regression", regression)):
            start = time.perf_counter()
            way(states, pairs)
            seconds[name].append(time.perf_counter() - start)
    worst = agreement(states)
    mine, bare, one = (statistics.median(seconds[name]) for name in seconds)
    theirs = one * len(pairs)
    shape = f"{LAYERS + 1} layers x {width} x {count:,} rows, {len(pairs)} pairs"
    return {
        "title": "Fitting all shortcuts",
        "text": f"{shape}; two coordinates are a hundred times the others. One pair of "
        "scikit-learn's LinearRegression is timed and counted for all pairs.",
        "table": [
            row("all pairs against LinearRegression per pair", f"{mine:.1f} s", f"{theirs:.0f} s",
                theirs / mine, ">= 50x", theirs / mine >= 50),
            row("all pairs against the bare products of the same size", f"{mine:.1f} s",
                f"{bare:.1f} s", mine / bare, "<= 2x", mine / bare <= 2),
            row("predictions against float64 lstsq, worst coordinate", f"{worst:.1e}",
                bar="<= 1e-4", met=worst <= 1e-4),
            row("memory told in advance", f"{moments_bytes(pairs, width) / 2**20:.0f} MB"),
        ],
        "measured": {name: spread(values) for name, values in seconds.items()},
    }  # fmt: skip


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


def ours(states: dict[int, torch.Tensor], pairs: list[Any], batch: int = 256) -> dict[Any, Any]:
    """Every map, the states coming in as small batches."""
    gatherer = Gatherer(pairs)
    for start in range(0, len(states[0]), batch):
        gatherer.add({layer: rows[start : start + batch] for layer, rows in states.items()})
    moments = gatherer.moments()
    return {i: fit(moments, i, [t for s, t in pairs if s == i]) for i in range(LAYERS)}


def products(states: dict[int, torch.Tensor], pairs: list[Any]) -> None:
    """The same matrix products and nothing else, in float32."""
    blocks = [(i, i) for i in range(LAYERS)] + pairs
    out = torch.empty(states[0].shape[1], states[0].shape[1])
    for source, target in blocks:
        torch.mm(states[source].T, states[target], out=out)


def regression(states: dict[int, torch.Tensor], pairs: list[Any]) -> None:
    """One pair the reference's way."""
    source, target = pairs[LAYERS - 1]
    LinearRegression(fit_intercept=False).fit(states[source].numpy(), states[target].numpy())


def agreement(states: dict[int, torch.Tensor]) -> float:
    """The largest relative difference of a predicted coordinate from float64 lstsq's."""
    gatherer = Gatherer([(0, LAYERS)])
    gatherer.add({0: states[0], LAYERS: states[LAYERS]})
    jump = fit(gatherer.moments(), 0, [LAYERS])[LAYERS]
    x, y = states[0].double(), states[LAYERS].double()
    exact = x @ torch.linalg.lstsq(x, y).solution
    return float(((jump(x) - exact).norm(dim=0) / exact.norm(dim=0)).max())
