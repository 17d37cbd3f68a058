"""The table of an inject run: a line per training, or the mass of a Fisher."""

import polars as pl

from cutaway.methods.inject.figures_ledger import pareto_table
from cutaway.report.method_table import MethodTable

# Of labelled sets: shown where there are some.
LEDGER_METRICS = ("probe_forgetting", "finetune_forgetting")
COLUMNS = (
    ("log_rmse", " test"), ("undecodable", " test"), ("lm_loss", ""),
    *((name, "") for name in LEDGER_METRICS),
)  # fmt: skip


def inject_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regularisers and strengths with what they gain and cost; a Fisher's mass, largest first."""
    points = pareto_table(rows)
    if points.is_empty():
        masses = rows.filter(pl.col("metric") == "mass").sort("value", descending=True)
        return masses.select("model", "skill", "probe", "metric", "value").head(12)
    after = rows.filter(pl.col("stage") == "after")
    keys = ["regulariser", "strength"]
    more = [
        after.filter((pl.col("metric") == metric) & pl.col("probe").str.ends_with(end))
        .group_by(keys, maintain_order=True)
        .agg(pl.col("value").mean().alias(metric))
        for metric, end in COLUMNS
    ]
    table = points.rename({"exact": "exact_match", "lost": "forgetting"})
    for found in more:
        table = table.join(found, on=keys, how="left", maintain_order="left")
    measured = [name for name in LEDGER_METRICS if table[name].is_not_null().any()]
    return table.select(
        *keys, "exact_match", "log_rmse", "undecodable", "lm_loss", "forgetting",
        pl.col("lost_low").alias("forgetting_low"), pl.col("lost_high").alias("forgetting_high"),
        *measured,
    )  # fmt: skip


TABLE = MethodTable(highlights=inject_table)
