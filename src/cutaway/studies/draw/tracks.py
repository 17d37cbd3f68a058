"""Finished runs as tracks of the drawing: values by layer, read from the rows of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.core.names import short_name
from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    chosen_cell,
    flat_baselines,
    largest_training_size,
)
from cutaway.report import formats
from cutaway.report.drawing.values import Series, Track
from cutaway.report.metric_labels import lower_is_better, metric_label
from cutaway.store.results import Record

PARTS = {"mlp": "mlp", "attn": "attention", "norm1": "norm", "norm2": "norm"}
"""Part of a block -> series of the skill track; everything else is `other`."""


def by_layer(pairs: Mapping[int, float | None], layers: int) -> Series:
    """The values of layers 0..L; None where there is none."""
    return tuple(pairs.get(layer) for layer in range(layers + 1))


def probe_track(record: Record, data: str, layers: int) -> Track | None:
    """The scores of the cells with the chosen pooler and classifier on one data set.

    None unless every single layer was measured.
    """
    found = [one for one in record.summary.get("results", ()) if one.get("data") == data]
    metric = found[0]["metric"] if found else None
    if metric is None or lower_is_better(metric):
        return None
    rows = record.rows.filter(pl.col("data") == data)
    table = largest_training_size(aggregate_cells(rows, metric))
    single = table.filter((pl.col("kind") == "baseline") | pl.col("layers").str.contains(r"^\d+$"))
    chosen = chosen_cell(single, metric)
    if chosen is None:
        return None
    cells = single.filter(
        (pl.col("pool") == chosen["pool"]) & (pl.col("classifier") == chosen["classifier"])
    )
    probe, control = (_cells_by_layer(cells, kind) for kind in ("probe", "control"))
    if set(probe) != set(range(layers + 1)):
        return None
    words = flat_baselines(single, data)
    baseline = max(words.values(), default=None)
    series = {
        "value": by_layer({n: cell["mean"] for n, cell in probe.items()}, layers),
        "low": by_layer({n: cell["low"] for n, cell in probe.items()}, layers),
        "high": by_layer({n: cell["high"] for n, cell in probe.items()}, layers),
    }
    if control:
        series["control"] = by_layer({n: cell["mean"] for n, cell in control.items()}, layers)
    above = f" (baseline {formats.number(baseline)})" if baseline is not None else ""
    return Track(
        kind="property", name=track_name(data), method="probe", question="What each layer knows",
        label=f"{track_name(data)}, {metric_label(metric)}{above}", series=series,
        baseline=baseline, chosen=int(chosen["layers"]), top=1.0, run=record.address,
        command=record.command,
    )  # fmt: skip


def track_name(data: str) -> str:
    """The short name of a data set: `gen:tense` is tense, a path its last part."""
    return short_name(data).removeprefix("gen:").partition("?")[0]


def _cells_by_layer(cells: pl.DataFrame, kind: str) -> dict[int, dict[str, Any]]:
    found = cells.filter((pl.col("kind") == kind) & pl.col("mean").is_not_null())
    return {int(cell["layers"]): cell for cell in found.iter_rows(named=True)}


def agreement_track(record: Record, layers: int) -> Track | None:
    """The share of tokens whose prediction is the full model's; None if it wasn't measured.

    Only of `shortcut eval`, which measures every layer.
    """
    if record.summary.get("verb") != "eval":
        return None
    rows = record.rows.filter((pl.col("metric") == "precision@1") & pl.col("lambda").is_null())
    through, lens = (_values(rows.filter(pl.col("kind") == kind)) for kind in ("mat", "id"))
    if not through:
        return None
    series = {
        "map": by_layer({n: row["value"] for n, row in through.items()}, layers),
        "low": by_layer({n: row["low"] for n, row in through.items()}, layers),
        "high": by_layer({n: row["high"] for n, row in through.items()}, layers),
        "lens": by_layer({n: row["value"] for n, row in lens.items()}, layers),
    }
    return Track(
        kind="agreement", name="agreement", method="shortcut", question="What it would say",
        label="agreement with the last layer", series=series, run=record.address,
        command=record.command,
    )  # fmt: skip


def linearity_track(record: Record, layers: int) -> Track | None:
    """r2 of the linear maps to the last and to the next layer; None without the latter.

    Only of the run that fitted the maps, which has their file.
    """
    if record.summary.get("verb") != "fit":
        return None
    rows = record.rows.filter((pl.col("metric") == "r2") & (pl.col("kind") == "mat"))
    pairs = {(row["source"], row["target"]): row["value"] for row in rows.iter_rows(named=True)}
    if any((layer, layer + 1) not in pairs for layer in range(layers)):
        return None
    series = {
        "last": by_layer({n: pairs.get((n, layers)) for n in range(layers)}, layers),
        "next": by_layer({n: pairs.get((n, n + 1)) for n in range(layers)}, layers),
    }
    return Track(
        kind="linearity", name="linearity", method="shortcut", question="How linear?",
        label="r² to the last layer", series=series, run=record.address, command=record.command,
    )  # fmt: skip


def _values(rows: pl.DataFrame) -> dict[int, dict[str, Any]]:
    return {row["layer"]: row for row in rows.iter_rows(named=True) if row["layer"] is not None}


def fisher_track(record: Record, layers: int) -> Track | None:
    """Shares of the Fisher information by layer; of plain text, and of a skill if there is one."""
    text, skill = _masses(record, "mass"), None
    if not text:
        text, skill = _masses(record, "mass of retained"), _masses(record, "mass of skill")
    if not text:
        return None
    series = {"text": by_layer(text, layers)}
    if skill:
        series["skill"] = by_layer(skill, layers)
    return Track(
        kind="fisher", name="fisher", method="inject", question="Where it would clash",
        label="share of the Fisher information", series=series, run=record.address,
        command=record.command,
    )  # fmt: skip


def _masses(record: Record, metric: str) -> dict[int, float | None]:
    """Layer -> share; weights after the blocks are left out, as the embeddings may be tied."""
    rows = record.rows.filter((pl.col("stage") == "fisher") & (pl.col("metric") == metric))
    layer = pl.col("probe").str.extract(r"^(\d+)/", 1).cast(pl.Int64)
    sums = rows.with_columns(layer.alias("layer")).group_by("layer").agg(pl.col("value").sum())
    return dict(sums.drop_nulls("layer").iter_rows())


def skill_track(
    counts: Mapping[tuple[int, str], float],
    layers: int,
    *,
    name: str,
    trained: Sequence[int] | None,
    run: str = "",
    command: str = "",
) -> Track:
    """Shares of a skill's weights by layer and part of the block."""
    total = sum(counts.values()) or 1.0
    shares: dict[str, dict[int, float | None]] = {
        part: {} for part in ("mlp", "attention", "norm", "other")
    }
    blocks = None if trained is None else {layer for layer in trained if layer <= layers}
    for layer in range(layers + 1):
        if blocks is None or layer in blocks:
            for part in shares:
                shares[part][layer] = 0.0
    for (layer, part), count in counts.items():
        if layer <= layers and count:
            place = shares[PARTS.get(part, "other")]
            place[layer] = (place.get(layer) or 0.0) + count / total
    flags = None if blocks is None else tuple(n in blocks for n in range(layers + 1))
    return Track(
        kind="skill", name="skill", method="graft", question="Where a skill sits",
        label=f"{name}: share of its weights",
        series={part: by_layer(values, layers) for part, values in shares.items()},
        trained=flags, run=run, command=command,
    )  # fmt: skip


def movement_track(drift: Mapping[int, float], layers: int, *, name: str, command: str) -> Track:
    """How far the weights of each layer moved in a tuned checkpoint."""
    return Track(
        kind="movement", name="movement", method="graft", question="What tuning moved",
        label=f"{name}: change relative to the norm",
        series={"change": by_layer(drift, layers)}, command=command,
    )  # fmt: skip
