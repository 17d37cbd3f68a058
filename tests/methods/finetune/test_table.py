"""The table of finetune: one line per run and metric."""

import polars as pl

from cutaway.methods.finetune.rows import FINETUNE_SCHEMA, FinetuneCoordinates
from cutaway.methods.finetune.table import finetune_table
from cutaway.recipe.result import table


def rows(seed: int) -> list[dict]:
    here = FinetuneCoordinates("m", "t", "prompt", None, seed)
    kinds = {"base": 0.5, "tuned": 0.9, "majority": 0.6}
    return [
        row
        for kind, value in kinds.items()
        for row in here.rows(kind, 0, "test", {"accuracy": value, "f1": value / 2})
    ] + here.rows("tuned", 10, "dev", {"accuracy": 0.1})


def test_only_test_scores_are_shown_side_by_side() -> None:
    shown = finetune_table(table([*rows(0), *rows(1)], FINETUNE_SCHEMA))
    assert shown.height == 4
    for line in shown.iter_rows(named=True):
        scale = 1.0 if line["metric"] == "accuracy" else 0.5
        found = (line["before"], line["majority baseline"], line["after"])
        assert found == (0.5 * scale, 0.6 * scale, 0.9 * scale)


def test_a_kind_that_was_not_measured_has_no_column() -> None:
    some = table(rows(0), FINETUNE_SCHEMA).filter(pl.col("kind") != "majority")
    assert "majority baseline" not in finetune_table(some).columns
