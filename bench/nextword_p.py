"""The whole p without storing it: memory, agreement with the dense solver, speed of Phi p.

Memory is measured in processes of their own, with all folds and strengths of the protocol: once
with the whole vocabulary, and twice with a short one to see what grows with the rows. That gives
the figure for AG News (120,000 rows, gpt2's 768 and 50,257). The time is that of a look at p.
"""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from bench.report import row, spread, told
from cutaway.methods.nextword.maths.classify import ClassifierSettings
from cutaway.methods.nextword.maths.full_p import distribution_stats as spread_of
from cutaway.methods.nextword.maths.full_p import fit_p
from cutaway.methods.nextword.maths.readout import OutputHead, expectations, next_token_probs
from cutaway.solvers.logistic import logistic_path

AG_NEWS, WIDTH, VOCAB, CLASSES = 120_000, 768, 50_257, 4
STEPS = 10
# Width of f and number of words where only memory is looked at.
NARROW, SHORT = 64, 2_048


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """Memory, objective, throughput."""
    width, vocab = (16, 600) if quick else (WIDTH, VOCAB)
    whole = child(300 if quick else 2_048, NARROW, vocab, STEPS)
    few, many = (child(n, NARROW, SHORT, 1) for n in ((300, 600) if quick else (50_000, AG_NEWS)))
    slope = max(0.0, (many["above_mb"] - few["above_mb"]) / (many["rows"] - few["rows"]))
    # Phi, and the training rows of f, which are copied where there are test rows besides.
    known = (vocab + AG_NEWS) * width * 4 / 2**20
    above = whole["above_mb"] + slope * (AG_NEWS - whole["rows"]) + known
    worst = objective_gap()
    seconds = throughput(128 if quick else 1_024, width, vocab, 1 if quick else min(rounds, 3))
    mine, bare, look = (statistics.median(seconds[name]) for name in seconds)
    counted = look / (128 if quick else 1_024) * AG_NEWS
    solver = whole["seconds_per_look"] / whole["rows"] * AG_NEWS
    return {
        "title": "The whole next-word distribution without storing it",
        "text": f"p of {vocab:,} words; {CLASSES} classes one against the rest, all folds and "
        f"strengths at once, {STEPS} steps of the solver at {whole['rows']:,} rows. What grows "
        f"with the rows is measured at {few['rows']:,} and {many['rows']:,} rows of a vocabulary "
        f"of {SHORT:,}, where p is not kept either. f is {NARROW} wide there; Phi and the copy of "
        f"the training rows of f are counted as {width} wide. Times are those of width {width}.",
        "table": [
            row(f"memory besides f for {AG_NEWS:,} rows, Phi included", f"{above:,.0f} MB",
                f"{AG_NEWS * vocab * 4 / 2**20:,.0f} MB of p", None, "< 2048 MB", above < 2048),
            row(f"measured above f at {whole['rows']:,} rows", f"{whole['above_mb']:,.0f} MB"),
            row("grows by", f"{slope * 1000:.2f} MB per 1,000 rows"),
            row(f"one look at p of {AG_NEWS:,} rows (counted)", f"{counted:,.0f} s"),
            row(f"one look of the solver at {AG_NEWS:,} rows, all folds (counted)",
                f"{solver:,.0f} s, {whole['looks']:.0f} looks in {STEPS} steps of all strengths"),
            row("objective against the dense solver, worst", f"{worst:.1e}", bar="<= 1e-4",
                met=worst <= 1e-4),
            row("Phi p against its two bare products", told(spread(seconds["ours"]), "s"),
                told(spread(seconds["products"]), "s"), bare / mine, ">= 0.8x", bare / mine >= 0.8),
        ],
        "measured": {"children": [whole, few, many], **{k: spread(v) for k, v in seconds.items()}},
    }  # fmt: skip


def child(rows: int, width: int, vocab: int, steps: int) -> dict[str, float]:
    """One fit in a process of its own."""
    words = [sys.executable, "-m", "bench._nextword_child"]
    sizes = map(str, (rows, width, vocab, CLASSES, steps))
    found = subprocess.run([*words, *sizes], check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return measured


def objective_gap() -> float:
    """The relative difference of the objective from the dense solver's, the worse of both ways."""
    rng = torch.Generator().manual_seed(1)
    f = torch.randn(500, 12, generator=rng, dtype=torch.float64)
    output = OutputHead(torch.randn(900, 12, generator=rng, dtype=torch.float64))
    y = (f[:, 0] + 0.5 * torch.randn(500, generator=rng) > 0).long().numpy()
    known, rows = spread_of(f, output), np.arange(500)
    p = (next_token_probs(f, output) - known.mean) / known.scale
    gaps = []
    for solver in ("gram", "stream"):
        mine = fit_p(
            f, output, y, [rows], ClassifierSettings(2, tol=1e-7, max_iter=4000), solver=solver
        )[0]
        dense = logistic_path(
            p,
            torch.from_numpy(y),
            strengths=[mine.c],
            standardise=False,
            tol=1e-10,
            max_iter=20_000,
        )
        weights = mine.weights[0] * known.scale
        z = p @ weights + float(mine.intercept[0] + mine.weights[0] @ known.mean)
        loss = torch.nn.functional.softplus(z) - torch.from_numpy(y) * z
        ours = float(mine.c * loss.sum() + 0.5 * weights.square().sum())
        gaps.append(abs(ours / float(dense.objective[0, 0]) - 1))
    return max(gaps)


def throughput(n: int, width: int, vocab: int, rounds: int) -> dict[str, list[float]]:
    """Seconds for Phi p of n rows, for its two matrix products, for a look at p, in turns."""
    rng = torch.Generator().manual_seed(0)
    f, phi = torch.randn(n, width, generator=rng), torch.randn(vocab, width, generator=rng)
    output = OutputHead(phi * (3 / width**0.5))
    seconds: dict[str, list[float]] = {"ours": [], "products": [], "look": []}
    for _ in range(rounds + 1):
        for name, way in (("ours", ours), ("products", products), ("look", spread_of)):
            start = time.perf_counter()
            way(f, output)
            seconds[name].append(time.perf_counter() - start)
    # The first round warms up.
    return {name: values[1:] for name, values in seconds.items()}


def ours(f: torch.Tensor, output: OutputHead) -> None:
    """Phi p of all rows."""
    expectations(f, output, {"phi_p": output.phi})


def products(f: torch.Tensor, output: OutputHead, block: int = 320) -> None:
    """f Phi^T and the product of the result with Phi, in blocks, and nothing else."""
    made = torch.empty(block, output.vocab)
    small = torch.empty(block, f.shape[1])
    for start in range(0, len(f), block):
        part = f[start : start + block]
        torch.mm(part, output.phi.T, out=made[: len(part)])
        torch.mm(made[: len(part)], output.phi, out=small[: len(part)])
