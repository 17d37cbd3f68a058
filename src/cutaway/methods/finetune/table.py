"""The table of `finetune`: before and after, side by side."""

import polars as pl

from cutaway.report.method_table import MethodTable

RUN_COLUMNS = ("base", "task", "mode", "shots", "seed")
"""The columns that identify a run."""
KIND_LABELS = {"base": "before", "majority": "majority baseline", "tuned": "after"}


def finetune_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One line per run and metric: before, majority baseline, after with its interval."""
    test = rows.filter((pl.col("part") == "test") & pl.col("kind").is_in(list(KIND_LABELS)))
    index = [*(name for name in RUN_COLUMNS if name in rows.columns), "metric"]
    named = test.with_columns(pl.col("kind").replace(KIND_LABELS))
    wide = named.pivot(on="kind", index=index, values="value", aggregate_function="first")
    ends = test.filter(pl.col("kind") == "tuned").select(*index, "low", "high")
    kinds = [words for words in KIND_LABELS.values() if words in wide.columns]
    joined = wide.join(ends, on=index, how="left", nulls_equal=True, maintain_order="left")
    return joined.select(*index, *kinds, "low", "high")


TABLE = MethodTable(highlights=finetune_table)
