"""The rows of probe runs as cells: one line per point of the grid, averaged over its repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.core.errors import Missing
from cutaway.measure.metrics import metric_facts
from cutaway.methods.probe.spec import TIE_METRIC, VALIDATION_SUFFIX
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
    validation = _validation_means(full)
    full = full.filter(~pl.col("metric").str.ends_with(VALIDATION_SUFFIX).fill_null(value=False))
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
    return by_layer(_with_validation(folded, validation))


def _validation_means(full: pl.DataFrame) -> pl.DataFrame:
    """The mean validation score of each cell by the metric it belongs to."""
    found = full.filter(pl.col("metric").str.ends_with(VALIDATION_SUFFIX))
    name = pl.col("metric").str.strip_suffix(VALIDATION_SUFFIX)
    cells = found.with_columns(name).group_by([*COORDINATES, "size", "metric"])
    return cells.agg(pl.col("value").mean().round(12).alias("validation"))


def _with_validation(table: pl.DataFrame, validation: pl.DataFrame) -> pl.DataFrame:
    """The columns by which cells are chosen: `validation`, and `tie` between equal ones."""
    cell = [*COORDINATES, "size"]
    ties = validation.filter(pl.col("metric") == TIE_METRIC).rename({"validation": "tie"})
    order: dict[str, Any] = {"how": "left", "nulls_equal": True, "maintain_order": "left"}
    return table.join(validation, on=[*cell, "metric"], **order).join(
        ties.drop("metric"), on=cell, **order
    )


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


def rank_cells(table: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The probe cells, best validation score first; runs without one are ranked by their means."""
    down = not lower_is_better(metric)
    return scored_probe_cells(table).sort(
        pl.coalesce("validation", "mean"), "tie", descending=[down, True], nulls_last=True,
        maintain_order=True,
    )  # fmt: skip


def chosen_cell(table: pl.DataFrame, metric: str) -> dict[str, Any] | None:
    """The probe cell that the validation rows choose."""
    found = rank_cells(table, metric)
    return found.row(0, named=True) if found.height else None


def chosen_cell_per_group(table: pl.DataFrame, by: Sequence[str], metric: str) -> pl.DataFrame:
    """The chosen probe cell of each group, in the groups' order of appearance."""
    ranked = rank_cells(table.with_row_index("_place"), metric)
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
