"""Small made-up probe runs: rows that look like a real grid, and details for every figure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cutaway.methods.probe import details
from cutaway.methods.probe.aggregate import aggregate_cells, chosen_cell
from cutaway.store.results import Record, save_record

SIZES = {"tiny-lm": 15_000_000, "small-lm": 135_000_000, "large-lm": 1_240_000_000}


@dataclass(frozen=True)
class FakeRecord:
    """A record that never saw a disk."""

    rows: pl.DataFrame
    method: str = "probe"
    address: str = "0123456789abcdef"
    spec: dict = field(default_factory=dict)
    summary: dict = field(default_factory=dict)
    baselines: dict = field(default_factory=dict)
    model: Any = field(default_factory=lambda: {"name": "small-lm", "parameters": 135_000_000})
    data: Any = field(default_factory=lambda: {"name": "gen:sentiment", "rows": 2000})
    seed: int = 0
    versions: dict = field(default_factory=dict)
    seconds: float = 12.3
    peak_memory_mb: float = 512.0
    command: str = "cutaway probe --model small-lm --data gen:sentiment"
    path: Path | None = None
    created: str = "2026-01-02T03:04:05+00:00"


def probe_rows(
    models: Sequence[str] = ("small-lm",),
    sets: Sequence[str] = ("gen:sentiment",),
    layers: Sequence[str] = tuple(map(str, range(13))),
    pools: Sequence[str] = ("last",),
    classifiers: Sequence[str] = ("logistic",),
    sizes: Sequence[int] = (1400,),
    repeats: int = 4,
    metrics: Sequence[str] = ("accuracy",),
    baselines: bool = True,
    seed: int = 0,
) -> pl.DataFrame:
    """Rows of a whole grid: scores rise through the layers and dip a little at the end."""
    rng = np.random.default_rng(seed)
    lines: list[dict] = []
    for model, data, size, metric in _product(models, sets, sizes, metrics):
        coordinates = {"model": model, "data": data, "n_train": size, "metric": metric}
        for layer, pool, classifier in _product(layers, pools, classifiers):
            cell = {"layers": layer, "pool": pool, "classifier": classifier}
            level = _level(model, layer, pool, classifier, size)
            lines += _repeats({**coordinates, **cell, "kind": "probe"}, level, repeats, rng)
            if baselines:
                for kind, share in (("twin", 0.25), ("control", 0.08)):
                    flat = 0.5 + (level - 0.5) * share
                    lines += _repeats({**coordinates, **cell, "kind": kind}, flat, repeats, rng)
        if baselines:
            for name, level in (("majority", 0.5), ("bow", 0.61), ("tfidf", 0.625)):
                cell = {"layers": "-", "pool": "text", "classifier": name, "kind": "baseline"}
                lines += _repeats({**coordinates, **cell}, level, repeats, rng)
    return pl.DataFrame(lines, schema_overrides={"reason": pl.String})


def failed_rows(reason: str = "ValueError: singular matrix") -> pl.DataFrame:
    """Probe rows in which every cell of one classifier failed."""
    rows = probe_rows(classifiers=("logistic", "qda"))
    failed = pl.col("classifier") == "qda"
    return rows.with_columns(
        *[
            pl.when(failed).then(None).otherwise(pl.col(c)).alias(c)
            for c in ("value", "low", "high")
        ],
        pl.when(failed).then(pl.lit("failed")).otherwise(pl.col("status")).alias("status"),
        pl.when(failed).then(pl.lit(reason)).otherwise(pl.col("reason")).alias("reason"),
    )


def probe_details(
    model: str = "small-lm",
    data: str = "gen:sentiment",
    layers: Iterable[str] = ("7",),
    pool: str = "last",
    classifiers: Iterable[str] = ("logistic",),
    classes: Sequence[str] = ("negative", "positive"),
    points: int = 200,
    seed: int = 0,
) -> list[details.AnyDetail]:
    """One entry of every kind for each cell."""
    rng = np.random.default_rng(seed)
    found: list[details.AnyDetail] = []
    for layer, classifier in _product(layers, classifiers):
        cell = {"model": model, "data": data, "layers": layer, "pool": pool}
        cell |= {"classifier": classifier}
        found += _cell_details(cell, classes, points, rng)
    return found


def _cell_details(cell: dict, classes: Sequence[str], points: int, rng: Any) -> list:
    truth = rng.integers(len(classes), size=points)
    score = np.where(truth == len(classes) - 1, 1.0, -0.8) + rng.normal(size=points)
    called = np.where(score > 0.1, len(classes) - 1, np.minimum(truth, len(classes) - 2))
    counts = np.zeros((len(classes), len(classes)), int)
    np.add.at(counts, (truth, called), 1)
    order = np.argsort(-score)
    hit = truth[order] == len(classes) - 1
    edges = np.linspace(-4, 4, 25)
    bins = {c: np.histogram(score[truth == i], edges)[0].tolist() for i, c in enumerate(classes)}
    epochs = np.arange(1, 31)
    return [
        details.ConfusionMatrix(**cell, classes=classes, counts=counts.tolist()),
        details.RocCurve(
            **cell,
            label=classes[-1],
            false_positive=[0.0, *(np.cumsum(~hit) / max(1, (~hit).sum())).tolist()],
            true_positive=[0.0, *(np.cumsum(hit) / max(1, hit.sum())).tolist()],
            auc=0.87,
        ),
        details.ScoreHistogram(**cell, edges=edges.tolist(), counts=bins, threshold=0.1),
        details.Projection(
            **cell,
            x=(truth * 1.5 + rng.normal(size=points)).tolist(),
            y=rng.normal(size=points).tolist(),
            labels=[classes[i] for i in truth],
            texts=[
                f"The film was number {i} and <b>{classes[t]}</b>." for i, t in enumerate(truth)
            ],
        ),
        details.LossCurves(
            **cell,
            train=(0.69 * np.exp(-epochs / 9)).tolist(),
            validation=(0.69 * np.exp(-epochs / 7) + 0.006 * epochs + 0.1).tolist(),
            kept=14,
        ),
    ]


def _product(*columns: Iterable[Any]) -> list[tuple]:
    return list(product(*columns))


def _level(model: str, layer: str, pool: str, classifier: str, size: int) -> float:
    """A believable score: more layers, more weights and more rows help, each less and less."""
    depth = int(layer) / 12 if layer.isdigit() else 0.72
    rise = 1 / (1 + math.exp(-7 * (depth - 0.35))) - 0.1 * max(0.0, depth - 0.7)
    weights = 0.035 * math.log10(SIZES.get(model, 135_000_000) / 15_000_000)
    pooled = {"last": 0.0, "mean": -0.02, "max": -0.05, "q0.4": -0.07, "attn": 0.01}
    fitted = {"logistic": 0.0, "lda": -0.012, "nb": -0.08, "mlp2": 0.008, "forest": -0.05}
    rows = 0.05 * math.log10(size / 1400)
    level = (
        0.52 + 0.24 * rise + weights + pooled.get(pool, 0) + fitted.get(classifier, -0.03) + rows
    )
    return min(0.99, max(0.5, level))


def _repeats(cell: dict, level: float, repeats: int, rng: Any) -> list[dict]:
    values = np.clip(level + rng.normal(scale=0.008, size=repeats), 0, 1)
    half = 2 * values.std(ddof=1) / math.sqrt(repeats) + 0.006 if repeats > 1 else 0.02
    mean = float(values.mean())
    shared = {"low": mean - half, "high": mean + half, "status": "done", "reason": None}
    counts = {"n_val": 200, "n_test": 400}
    return [
        {**cell, **counts, "repeat": i, "value": float(v), **shared} for i, v in enumerate(values)
    ]


def save_run(
    folder: Path,
    rows: pl.DataFrame | None = None,
    *,
    entries: Sequence[details.AnyDetail] = (),
    address: str = "0123456789abcdef",
    summary: dict | None = None,
    command: str | None = None,
    spec: dict | None = None,
    files: dict[str, bytes] | None = None,
) -> Record:
    """A run on the disk, as a recipe would leave it."""
    rows = probe_rows() if rows is None else rows
    models, sets = (rows[c].unique(maintain_order=True).to_list() for c in ("model", "data"))
    told = [_model(name) for name in models]
    texts = [{"name": name, "rows": 2000, "digest": "d1" * 32} for name in sets]
    said = command or f"cutaway probe --model {' '.join(models)} --data {' '.join(sets)}"
    return save_record(
        folder,
        method="probe",
        address=address,
        spec={"model": models, "data": sets, **(spec or {})},
        summary=summary_of(rows) if summary is None else summary,
        baselines={f"{m} on {d}": {"majority": 0.5, "tfidf": 0.625} for m in models for d in sets},
        model=told[0] if len(told) == 1 else told,
        data=texts[0] if len(texts) == 1 else texts,
        seed=0,
        versions={"python": "3.11.9", "torch": "2.13.0"},
        seconds=83.2,
        peak_memory_mb=1234.5,
        command=said,
        rows=rows,
        files={
            **({details.DETAILS_FILE: details.dump_details(entries)} if entries else {}),
            **(files or {}),
        },
    )


def summary_of(rows: pl.DataFrame) -> dict:
    """A summary with a verdict and the headline, as a recipe would write it."""
    top = chosen_cell(aggregate_cells(rows, "accuracy"), "accuracy")
    if top is None:
        return {"metric": "accuracy", "verdict": []}
    cell = {k: top[k] for k in ("model", "data", "layers", "pool", "classifier", "low", "high")}
    score = f"{top['mean']:.3f}"
    return {
        "metric": "accuracy",
        "headline": {**cell, "metric": "accuracy", "value": top["mean"]},
        "verdict": [
            f"Layer {top['layers']} reads it best: accuracy {score}.",
            f"TF-IDF words explain 0.625 of the {score}; random weights give less.",
        ],
    }


def _model(name: str) -> dict:
    size = SIZES.get(name, 135_000_000)
    known = {"family": "llama", "layers": 12, "width": 576, "digest": "a0" * 32}
    return {"name": name, "parameters": size, **known}
