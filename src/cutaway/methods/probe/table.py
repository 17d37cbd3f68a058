"""The tables of probe runs: the first cells with the baselines, all cells, the key numbers."""

import polars as pl

from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    chosen_cell,
    fill_missing_columns,
    flat_baselines,
    largest_training_size,
    main_metric,
    rank_cells,
    varying_columns,
)
from cutaway.report import formats, theme
from cutaway.report.method_table import KeyNumber, MethodTable
from cutaway.report.metric_labels import lower_is_better, metric_label
from cutaway.report.overview import headline_in_summary
from cutaway.report.records import RecordLike, RunOrRuns

SUMMARY_COLUMNS = (
    "model", "data", "kind", "layers", "pool", "classifier", "metric",
    "mean", "low", "high", "repeats", "n_train", "n_test", "failed",
)  # fmt: skip
RANKING_COLUMNS = (
    "kind", "layers", "pool", "classifier", "mean", "low", "high", "repeats", "validation",
)  # fmt: skip
MAX_KEY_NUMBERS = 6


def summary_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per cell and metric: mean over repeats, interval, sizes, failed repeats."""
    return aggregate_cells(rows).select(SUMMARY_COLUMNS)


def ranking_table(rows: pl.DataFrame, record: RunOrRuns, most: int = 12) -> pl.DataFrame:
    """The cells with the best validation scores of the main metric, then all baselines."""
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric)).filter(
        pl.col("mean").is_not_null()
    )
    # Text baselines don't depend on the model: list them once per data set.
    baselines = table.filter(pl.col("kind") == "baseline").unique(
        ["data", "classifier"], keep="first", maintain_order=True
    ).sort("mean", descending=not lower_is_better(metric), maintain_order=True)  # fmt: skip
    chosen = pl.concat([rank_cells(table, metric).head(most), baselines])
    names = [c for c in ("model", "data") if c in varying_columns(table, ("model", "data"))]
    return chosen.select(*names, *RANKING_COLUMNS)


def key_numbers(rows: pl.DataFrame, record: RecordLike) -> list[KeyNumber]:
    """The headline, its baselines, and the number of cells; nothing when every cell failed."""
    metric = main_metric(rows, record)
    table = aggregate_cells(rows, metric)
    top = chosen_cell(table, metric)
    if top is None:
        return []
    # Over several repeats the headline is the mean of the cells that each of them chose.
    headline = headline_in_summary(record)
    if headline.get("metric") != metric or headline.get("data") != top["data"]:
        headline = {**top, "value": top["mean"]}
    note = f"layer {headline['layers']}, {headline['pool']}, {headline['classifier']}"
    if headline["low"] is not None:
        low, high = formats.number(headline["low"]), formats.number(headline["high"])
        note += f"; 95 %: {low} to {high}"
    numbers = [KeyNumber(metric_label(metric), formats.number(headline["value"]), note)]
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
