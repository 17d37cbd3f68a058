"""The table of inject: a line per training, or the groups of a Fisher."""

import polars as pl
import pytest

from cutaway.methods.inject.rows import InjectCoordinates, inject_frame
from cutaway.methods.inject.table import TABLE, inject_table
from tests.methods.inject.test_figures import CELLS, rows_of


def test_every_training_has_a_line_with_the_means_of_its_rows() -> None:
    rows = rows_of()
    table = inject_table(rows)
    assert table.select("regulariser", "strength").rows() == CELLS
    test = pl.col("probe") == "arithmetic test"
    for line in table.iter_rows(named=True):
        mine = rows.filter(
            (pl.col("regulariser") == line["regulariser"])
            & (pl.col("strength") == line["strength"])
        )
        for name in ("exact_match", "log_rmse", "undecodable"):
            values = mine.filter(test & (pl.col("metric") == name))["value"]
            assert line[name] == pytest.approx(values.mean())
        for name in ("lm_loss", "forgetting", "probe_forgetting", "finetune_forgetting"):
            assert line[name] == pytest.approx(
                mine.filter(pl.col("metric") == name)["value"].mean()
            )


def test_columns_of_labelled_sets_are_shown_only_where_they_were_measured() -> None:
    rows = rows_of().filter(~pl.col("metric").is_in(["probe_forgetting", "finetune_forgetting"]))
    assert inject_table(rows).columns == [
        "regulariser", "strength", "exact_match", "log_rmse", "undecodable", "lm_loss",
        "forgetting", "forgetting_low", "forgetting_high",
    ]  # fmt: skip


def test_a_fisher_has_its_largest_groups_first() -> None:
    fisher = InjectCoordinates("m", "docs", "fisher")
    masses = {(i, "mlp"): 0.01 * i for i in range(1, 20)}
    table = TABLE.highlights(inject_frame(fisher.weight_rows("fisher", "mass", masses)))
    assert table.height == 12
    assert table["probe"][0] == "19/mlp"
    assert table["value"].is_sorted(descending=True)
