"""The tables of probe runs: the best cells with the baselines, all cells, the key numbers."""

import polars as pl

from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    best_cell,
    fill_missing_columns,
    flat_baselines,
    largest_training_size,
    main_metric,
    varying_columns,
)
from cutaway.report import formats, theme
from cutaway.report.method_table import KeyNumber, MethodTable
from cutaway.report.metric_labels import lower_is_better, metric_label
from cutaway.report.records import RecordLike, RunOrRuns

SUMMARY_COLUMNS = (
    "model", "data", "kind", "layers", "pool", "classifier", "metric",
    "mean", "low", "high", "repeats", "n_train", "n_test", "failed",
)  # fmt: skip
RANKING_COLUMNS = ("kind", "layers", "pool", "classifier", "mean", "low", "high", "repeats")
MAX_KEY_NUMBERS = 6


def summary_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per cell and metric: mean over repeats, interval, sizes, failed repeats."""
    return aggregate_cells(rows).select(SUMMARY_COLUMNS)


def ranking_table(rows: pl.DataFrame, record: RunOrRuns, most: int = 12) -> pl.DataFrame:
    """The best cells and all baselines of the main metric, best first."""
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric)).filter(
        pl.col("mean").is_not_null()
    )
    descending = not lower_is_better(metric)
    table = table.sort("mean", descending=descending, maintain_order=True)
    # Text baselines don't depend on the model: list them once per data set.
    baselines = table.filter(pl.col("kind") == "baseline").unique(
        ["data", "classifier"], keep="first", maintain_order=True
    )
    top = table.filter(pl.col("kind") == "probe").head(most)
    chosen = pl.concat([top, baselines]).sort("mean", descending=descending, maintain_order=True)
    names = [c for c in ("model", "data") if c in varying_columns(table, ("model", "data"))]
    return chosen.select(*names, *RANKING_COLUMNS)


def key_numbers(rows: pl.DataFrame, record: RecordLike) -> list[KeyNumber]:
    """The best score, its baselines, and the number of cells; nothing when every cell failed."""
    metric = main_metric(rows, record)
    table = aggregate_cells(rows, metric)
    top = best_cell(table, metric)
    if top is None:
        return []
    note = f"layer {top['layers']}, {top['pool']}, {top['classifier']}"
    if top["low"] is not None:
        note += f"; 95 %: {formats.number(top['low'])} to {formats.number(top['high'])}"
    numbers = [KeyNumber(f"best {metric_label(metric)}", formats.number(top["mean"]), note)]
    for name, value in flat_baselines(largest_training_size(table), top["data"]).items():
        label = theme.BASELINE_STYLES.get(name, (name,))[0]
        numbers.append(KeyNumber(label, formats.number(value), "baseline without a model"))
    cells = KeyNumber(
        "cells measured", f"{table.height:,}", f"in {formats.duration(record.seconds)}"
    )
    return [*numbers, cells][:MAX_KEY_NUMBERS]


TABLE = MethodTable(
    ranking=ranking_table,
    summary=summary_table,
    key_numbers=key_numbers,
    complete=fill_missing_columns,
)
