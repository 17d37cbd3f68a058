"""The logistic path against scikit-learn's LogisticRegressionCV, the probing grid, rows on disk.

python -m bench --only probe_solver
python -m bench.probe_solver --features FILE     (.npz or .safetensors: matrices, and y)
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from bench.report import row, spread, told
from cutaway.measure.splits import SplitPlan, split
from cutaway.methods.probe.maths.cell import RowBlocks, probe_splits
from cutaway.solvers.logistic import logistic_path

ROWS, TEST, WIDTH, FOLDS = 6400, 1600, 768, 5
STRENGTHS = np.logspace(-4, 4, 10)
GRID = ("logistic", "ridge", "lda", "nb", "centroid")
MATRICES = 31 * 3
DISK_ROWS = 200_000
Data = tuple[np.ndarray, np.ndarray, int]


def run(
    quick: bool, rows: int | None = None, rounds: int = 5, features: str | None = None
) -> dict[str, Any]:
    """Times, accuracies and gradients of all three parts."""
    count, width = (400, 32) if quick else (rows or ROWS, WIDTH)
    rounds = 1 if quick else min(rounds, 3)
    sets: dict[str, Data] = {"outliers": synthetic(count, width)}
    sets["outliers, scaled first"] = scaled(sets["outliers"])
    sets |= {name: scaled(data) for name, data in read(features, count).items()}
    found = {name: compare(data, rounds) for name, data in sets.items()}
    table = [line for name, measured in found.items() for line in lines(name, measured)]
    grid_table, grid_found = grid(quick)
    disk_table, disk_found = on_disk(2000 if quick else DISK_ROWS, width)
    return {
        "title": "Probing: solvers and grid",
        "text": f"{count:,} rows x {width}, {len(STRENGTHS)} C from 1e-4 to 1e4, {FOLDS} folds and "
        "the refit, tolerance 1e-4 on both sides; two coordinates are a hundred times the others. "
        "liblinear is timed once. The grid is 31 layers x 3 poolers x 5 classifiers x 10 repeats "
        "of 2,000 rows x 576, with every metric. Gradients are those of the mean loss + penalty.",
        "table": table + grid_table + disk_table,
        "measured": {"solver": found, "grid": grid_found, "disk": disk_found},
    }


def synthetic(n: int, d: int, *, seed: int = 0) -> Data:
    """Features with a falling spectrum, two of them a hundred times the rest; noisy labels."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    x = (rng.standard_normal((n + n // 4, d)) * np.arange(1, d + 1) ** -0.5) @ turn.T
    x /= x.std()
    signal = x @ rng.standard_normal(d)
    y = (2 * signal / signal.std() + rng.logistic(size=len(x)) > 0).astype(int)
    x[:, [d // 100, d // 2]] = x[:, [d // 100, d // 2]] * 100 + np.array([300.0, -50.0])
    return x.astype(np.float32), y, n


def scaled(data: Data) -> Data:
    """The same features with the mean and deviation of the train rows taken out."""
    x, y, n = data
    return StandardScaler().fit(x[:n]).transform(x).astype(np.float32), y, n


def read(path: str | None, count: int) -> dict[str, Data]:
    """Features from a file, each matrix with the labels `y`; the rows beyond `count` test."""
    if path is None:
        return {}
    if path.endswith(".safetensors"):
        arrays = load_file(path)
    else:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    y = arrays.pop("y")
    n = min(count, len(y) * 4 // 5)
    return {f"{Path(path).stem} {name}": (x, y, n) for name, x in arrays.items()}


def compare(data: Data, rounds: int) -> dict[str, Any]:
    """Seconds, test accuracy and gradient of each solver on the same features, C and folds."""
    ways: dict[str, Callable[[Data], dict[str, Any]]] = {"ours": ours, "lbfgs": rival("lbfgs")}
    found: dict[str, dict[str, Any]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name], taken = timed(way, data)
            seconds[name].append(taken)
    found["liblinear"], taken = timed(rival("liblinear"), data)
    seconds["liblinear"] = [taken]
    return {name: {**found[name], "seconds": spread(seconds[name])} for name in found}


def timed(way: Callable[[Data], dict[str, Any]], data: Data) -> tuple[dict[str, Any], float]:
    start = time.perf_counter()
    found = way(data)
    return found, time.perf_counter() - start


def folds_of(y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(y, y))


def ours(data: Data) -> dict[str, Any]:
    """The whole path, its folds and the refit on all rows, in one call."""
    x, y, n = data
    parts = folds_of(y[:n])
    marks = torch.ones(FOLDS + 1, n, dtype=torch.bool)
    for mine, (_, held) in zip(marks, parts, strict=False):
        mine[held] = False
    rows = torch.from_numpy(x[:n])
    path = logistic_path(
        rows, torch.from_numpy(y[:n]), strengths=STRENGTHS.tolist(), folds=marks, standardise=False
    )
    said = path.logits(rows)[..., 0] > 0
    right = [(said[f][:, held] == torch.from_numpy(y[held] == 1)).double().mean(1).numpy()
             for f, (_, held) in enumerate(parts)]  # fmt: skip
    best = int(np.mean(right, 0).argmax())
    return judged(
        data, path.weights[-1, best, 0].numpy(), float(path.intercept[-1, best, 0]), best,
        np.mean(right, 0), float(path.gradient.max()),
    )  # fmt: skip


def rival(solver: str) -> Callable[[Data], dict[str, Any]]:
    """scikit-learn's cross-validated logistic regression."""

    def way(data: Data) -> dict[str, Any]:
        x, y, n = data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegressionCV(
                Cs=STRENGTHS, cv=folds_of(y[:n]), solver=solver, scoring="accuracy"
            ).fit(x[:n], y[:n])
        kept = model.scores_
        scores = np.asarray(next(iter(kept.values())) if isinstance(kept, dict) else kept)
        best = int(np.abs(STRENGTHS - np.ravel(model.C_)[0]).argmin())
        return judged(
            data, model.coef_[0], float(model.intercept_[0]), best,
            scores.reshape(FOLDS, -1).mean(0), None,
        )  # fmt: skip

    return way


def judged(
    data: Data, weights: np.ndarray, bias: float, best: int, right: np.ndarray, worst: float | None
) -> dict[str, Any]:
    """What a refit is worth: test accuracy, and the gradient it stopped at."""
    x, y, n = data
    train, truth = x[:n].astype(np.float64), y[:n]
    rest = 1 / (1 + np.exp(-(train @ weights + bias))) - truth
    slope = train.T @ rest / n + weights / (STRENGTHS[best] * n)
    return {
        "accuracy": float(((x[n:] @ weights + bias > 0) == (y[n:] == 1)).mean()),
        "c": float(STRENGTHS[best]),
        "gradient": float(max(np.abs(slope).max(), abs(rest.mean()))),
        "worst_gradient": worst,
        "fold_accuracy": [round(float(v), 4) for v in right],
    }


def lines(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The table's rows of one set of features."""
    mine, made = found["ours"], []
    for other, bar in (("lbfgs", 2), ("liblinear", 10)):
        theirs = found[other]
        ratio = theirs["seconds"]["median"] / mine["seconds"]["median"]
        gap = 100 * (mine["accuracy"] - theirs["accuracy"])
        both = [f"{100 * way['accuracy']:.2f}" for way in (mine, theirs)]
        slopes = [f"{way['gradient']:.1e}" for way in (mine, theirs)]
        times = [told(way["seconds"], "s") for way in (mine, theirs)]
        made += [
            row(f"{name}: path against {other}", *times, ratio, f">= {bar}x", ratio >= bar),
            row(f"{name}: accuracy against {other}", *both, None, ">= -0.2 points", gap >= -0.2),
            row(f"{name}: gradient of the refit against {other}", *slopes),
        ]
    return made


def grid(quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The full grid's seconds: every matrix is made anew, every cell judged by every metric."""
    n, d, matrices = (200, 16, 2) if quick else (2000, 576, MATRICES)
    seconds = dict.fromkeys(GRID, 0.0)
    for k in range(matrices):
        x, y, _ = scaled(synthetic(n, d, seed=k))
        x, y = x[:n], y[:n]
        splits = split(y, SplitPlan(repeats=10), task="binary")
        for name in GRID:
            start = time.perf_counter()
            probe_splits(torch.from_numpy(x), y, splits, name, task="binary")
            seconds[name] += time.perf_counter() - start
    total = sum(seconds.values()) * MATRICES / matrices
    bar = row("grid of 31 x 3 x 5 x 10 cells", f"{total:.0f} s", "-", None, "< 300 s", total < 300)
    return [bar], {"seconds": total, **seconds, "matrices": matrices}


def on_disk(n: int, d: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Probing rows that stay on disk, in a process of its own whose memory is watched."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.bin"
        write(file, n, d)
        words = [sys.executable, "-m", "bench.probe_solver", "--stream", str(file), str(n), str(d)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    text = f"{found['seconds']:.0f} s, {found['peak_mb']:.0f} MB"
    what = f"logistic on {n:,} x {d} float32 rows on disk, 10 C"
    return [row(what, text, "-", None, "< 1024 MB", found["peak_mb"] < 1024)], found


def write(file: Path, n: int, d: int, block: int = 10_000) -> None:
    """Features on disk, made block by block; the label is a noisy sum of some of them."""
    rng = np.random.default_rng(0)
    with file.open("wb") as out:
        for start in range(0, n, block):
            out.write(rng.standard_normal((min(block, n - start), d), dtype=np.float32).tobytes())


def streamed(file: Path, n: int, d: int) -> dict[str, Any]:
    """What the watched process does: labels from the features, one split, the logistic probe."""

    def blocks(size: int = 4096) -> Iterator[torch.Tensor]:
        with file.open("rb") as opened:
            while data := opened.read(4 * d * size):
                yield torch.frombuffer(bytearray(data), dtype=torch.float32).view(-1, d)

    rng = np.random.default_rng(1)
    signal = np.concatenate([b[:, : d // 8].sum(1).numpy() for b in blocks()])
    y = (2 * signal / signal.std() + rng.logistic(size=n) > 0).astype(int)
    splits = split(y, SplitPlan(repeats=1), task="binary")
    start = time.perf_counter()
    found = probe_splits(RowBlocks(blocks, n, d), y, splits, "logistic", task="binary")[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": time.perf_counter() - start,
        "peak_mb": peak / 1024,
        "accuracy": found.metrics["accuracy"],
        "notes": found.notes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", nargs=3, metavar=("FILE", "ROWS", "WIDTH"))
    parser.add_argument(
        "--features", help="an .npz or .safetensors file of matrices, and labels called y"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.stream:
        file, n, d = given.stream
        print(json.dumps(streamed(Path(file), int(n), int(d))))
        return
    for line in run(given.quick, rounds=given.rounds, features=given.features)["table"]:
        print(
            " | ".join(str(line[key]) for key in ("what", "ours", "rival", "ratio", "bar", "met"))
        )


if __name__ == "__main__":
    main()
