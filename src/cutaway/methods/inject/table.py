"""The table of an inject run: a line per training, or the mass of a Fisher."""

import polars as pl

from cutaway.methods.inject.figures_ledger import KEYS, pareto_table
from cutaway.report.method_table import MethodTable

# Shown where they were measured: they need answers that are numbers, or labelled sets.
OPTIONAL_METRICS = ("log_rmse", "probe_forgetting", "finetune_forgetting")


def inject_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Gain and cost of each regulariser and strength; of a Fisher, its mass, largest first."""
    points = pareto_table(rows)
    if points.is_empty():
        masses = rows.filter(pl.col("metric") == "mass").sort("value", descending=True)
        return masses.select("model", "skill", "probe", "metric", "value").head(12)
    test = rows.filter((pl.col("stage") == "after") & pl.col("probe").str.ends_with(" test"))
    undecodable = (
        test.filter(pl.col("metric") == "undecodable")
        .group_by(KEYS, maintain_order=True)
        .agg(pl.col("value").mean().alias("undecodable"))
    )
    measured = [name for name in OPTIONAL_METRICS if points[name].is_not_null().any()]
    numeric = [name for name in measured if name == "log_rmse"]
    return points.join(undecodable, on=KEYS, how="left", maintain_order="left").select(
        *KEYS,
        *("exact_match", *numeric, "undecodable", "lm_loss"),
        *("forgetting", "forgetting_low", "forgetting_high"),
        *(name for name in measured if name not in numeric),
    )


TABLE = MethodTable(highlights=inject_table)
