"""The rows of probe runs as cells: one line per point of the grid, averaged over its repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.core.errors import Missing
from cutaway.measure.metrics import metric_facts
from cutaway.report.metric_labels import lower_is_better, measured_metrics
from cutaway.report.records import RunOrRuns
from cutaway.report.summary import by_layer

COORDINATES = ("model", "data", "kind", "layers", "pool", "classifier")


# The columns a series can differ in, most informative first.
FACETS = ("data", "model", "pool", "classifier")


COLUMN_TYPES: Mapping[Any, pl.DataType] = {
    **{name: pl.String() for name in (*COORDINATES, "metric", "status", "reason")},
    **{name: pl.Int64() for name in ("repeat", "n_train", "n_val", "n_test")},
    **{name: pl.Float64() for name in ("value", "low", "high")},
}


def fill_missing_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with every column the report asks for; logs from elsewhere lack some."""
    missing = [
        pl.lit(None, dtype=t).alias(n) for n, t in COLUMN_TYPES.items() if n not in rows.columns
    ]
    filled = rows.with_columns(missing).cast(COLUMN_TYPES, strict=False)
    return filled.with_columns(
        pl.col("kind").fill_null("probe"),
        pl.col("reason").replace("", None),
        pl.col("status").fill_null("done"),
        pl.col("model", "data", "layers", "pool", "classifier").fill_null("-"),
    )


def main_metric(rows: pl.DataFrame, record: RunOrRuns) -> str:
    """The metric the figures speak of: the run's own choice, else the best known one."""
    found = measured_metrics(rows)
    if not found:
        raise Missing("No measured rows in this run. Repeat its command to measure them.")
    said = (record.summary or {}).get("metric")
    return str(said) if said in found else found[0]


def aggregate_cells(rows: pl.DataFrame, metric: str | None = None) -> pl.DataFrame:
    """One line per cell and training size: mean over repeats, interval, repeats, failures."""
    full = with_training_size(fill_missing_columns(rows))
    if metric is not None:
        full = full.filter(pl.col("metric") == metric)
    done = pl.col("status") == "done"
    names = full["metric"].drop_nulls().unique().to_list()
    bottom, top = (_metric_bound(names, place) for place in (0, 1))
    folded = full.group_by([*COORDINATES, "size", "metric"], maintain_order=True).agg(
        pl.col("value").filter(done & pl.col("value").is_finite()).mean().alias("mean"),
        # With two or three repeats a t interval leaves the range a share can have: cut it there.
        pl.max_horizontal(pl.col("low").drop_nulls().first(), bottom).alias("low"),
        pl.min_horizontal(pl.col("high").drop_nulls().first(), top).alias("high"),
        pl.col("n_train").max(),
        pl.col("n_test").max(),
        done.sum().alias("repeats"),
        (~done).sum().alias("failed"),
        pl.col("reason").drop_nulls().first().alias("reason"),
    )
    return by_layer(folded)


def _metric_bound(names: Sequence[str], place: int) -> pl.Expr:
    """The bound of each row's metric, where its interval has an end to be cut."""
    bounds = {name: metric_facts(name).bounds[place] for name in names}
    end = pl.col("low" if place == 0 else "high").drop_nulls().first()
    bound = pl.col("metric").first().replace_strict(bounds, default=None, return_dtype=pl.Float64)
    return pl.when(end.is_not_null()).then(bound)


def with_training_size(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with `size`, the training size of their cell: the largest of its folds.

    In a learning curve the same repeat has several sizes, and each is a cell; folds that differ by
    rounding are one repeat each.
    """
    cell = [c for c in (*COORDINATES, "experiment", "metric") if c in rows.columns]
    place = pl.col("n_train").rank("dense").over(*cell, "repeat")
    return rows.with_columns(pl.col("n_train").max().over(*cell, place).alias("size"))


def largest_training_size(table: pl.DataFrame) -> pl.DataFrame:
    """Only the cells fitted on the most rows, per model and data set."""
    largest = pl.col("size").max().over("model", "data", "kind", "classifier")
    return table.filter(pl.col("size").is_null() | (pl.col("size") == largest))


def scored_probe_cells(table: pl.DataFrame) -> pl.DataFrame:
    """The cells that are scores of a probe, failures left out."""
    return table.filter((pl.col("kind") == "probe") & pl.col("mean").is_not_null())


def best_cell(table: pl.DataFrame, metric: str) -> dict[str, Any] | None:
    """The best probe cell; for errors and code lengths that is the lowest."""
    found = scored_probe_cells(table).sort("mean", descending=not lower_is_better(metric))
    return found.row(0, named=True) if found.height else None


def best_cell_per_group(table: pl.DataFrame, by: Sequence[str], metric: str) -> pl.DataFrame:
    """The best probe cell of each group, in the groups' order of appearance."""
    ranked = scored_probe_cells(table).with_row_index("_place")
    ranked = ranked.sort("mean", descending=not lower_is_better(metric), maintain_order=True)
    return ranked.unique(list(by), keep="first", maintain_order=True).sort("_place").drop("_place")


def varying_columns(table: pl.DataFrame, columns: Sequence[str] = FACETS) -> list[str]:
    """Those columns in which the probe cells differ."""
    found = scored_probe_cells(table)
    return [c for c in columns if c in found.columns and found[c].n_unique() > 1]


def flat_baselines(table: pl.DataFrame, data: str) -> dict[str, float]:
    """Baselines that don't depend on a layer: name -> mean, lowest first, for one data set."""
    found = table.filter(
        (pl.col("kind") == "baseline") & (pl.col("data") == data) & pl.col("mean").is_not_null()
    )
    return {c["classifier"]: c["mean"] for c in found.sort("mean").iter_rows(named=True)}
