"""Rows of any method as cells: the mean over repeats with its interval, and what failed."""

import polars as pl

from cutaway.measure.intervals import over_seed_rows
from cutaway.measure.metrics import metric_facts
from cutaway.report.formats import layer_order

# What isn't a coordinate of a cell.
NON_COORDINATES = frozenset({"value", "low", "high", "repeat", "seed", "status", "reason"})
# Columns that hold results, not settings.
RESULT_COLUMNS = NON_COORDINATES | {"metric", "n_train", "n_val", "n_test", "seconds"}


def summarize_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per cell and metric: mean over repeats, interval, number of repeats."""
    coordinates = [c for c in rows.columns if c not in NON_COORDINATES]
    bounds = [pl.col(c).first() for c in ("low", "high") if c in rows.columns]
    cells = rows.group_by(coordinates, maintain_order=True).agg(
        pl.col("value").mean().alias("mean"), *bounds, pl.len().alias("repeats"),
        pl.col("value").alias("values"),
        *[pl.col(c).alias(f"{c}s") for c in ("low", "high") if c in rows.columns],
        *[pl.col("low").drop_nulls().n_unique().alias("intervals")] * ("low" in rows.columns),
    )  # fmt: skip
    cells = _intervals_over_repeats(cells) if bounds else cells
    return cells.drop("values", "lows", "highs", "intervals", strict=False)


def _intervals_over_repeats(cells: pl.DataFrame) -> pl.DataFrame:
    """Where each repeat has its own interval, replace it by the interval of their mean."""
    intervals = []
    columns = ("metric", "low", "high", "values", "lows", "highs", "intervals")
    for cell in cells.select(columns).iter_rows(named=True):
        low, high = cell["low"], cell["high"]
        if cell["intervals"] > 1:
            mean = over_seed_rows(cell["values"], cell["lows"], cell["highs"])
            least, most = metric_facts(cell["metric"]).bounds
            low = mean.low if least is None else max(mean.low, least)
            high = mean.high if most is None else min(mean.high, most)
        intervals.append((low, high))
    return cells.with_columns(
        pl.Series("low", [low for low, _ in intervals], dtype=pl.Float64),
        pl.Series("high", [high for _, high in intervals], dtype=pl.Float64),
    )


def failed_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """The settings that failed, one line per reason: which layers, and how many rows in all."""
    if "status" not in rows.columns:
        return pl.DataFrame()
    failed = by_layer(rows.filter(pl.col("status").fill_null("done") != "done"))
    settings = [c for c in rows.columns if c not in RESULT_COLUMNS]
    shown = [c for c in settings if c != "layers" and failed[c].null_count() < failed.height]
    layers = [pl.col("layers").unique(maintain_order=True).str.join(" ")] * ("layers" in settings)
    groups = failed.group_by(*shown, pl.col("reason").replace("", None), maintain_order=True)
    return groups.agg(*layers, pl.len().alias("times"))


def by_layer(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows sorted by layer number; otherwise in the order they were measured."""
    if "layers" not in rows.columns:
        return rows
    rows = rows.with_columns(pl.col("layers").cast(pl.String))
    layers = sorted(rows["layers"].drop_nulls().unique().to_list(), key=layer_order)
    rank = {name: i for i, name in enumerate(layers)}
    key = pl.col("layers").replace_strict(rank, default=None, return_dtype=pl.Int64)
    return rows.sort(key, maintain_order=True)
