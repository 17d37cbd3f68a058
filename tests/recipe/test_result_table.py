"""Tidy tables: nothing is lost, nothing is invented, what is not known is null."""

import math

import polars as pl
import pytest

from cutaway.measure.intervals import Interval
from cutaway.methods.finetune.rows import FINETUNE_SCHEMA as FINETUNE
from cutaway.methods.graft.rows import GRAFT_SCHEMA as GRAFT
from cutaway.methods.inject.rows import SCHEMA as INJECT
from cutaway.methods.nextword.rows import NEXTWORD_SCHEMA as NEXTWORD
from cutaway.methods.shortcut.rows import SCHEMA as SHORTCUT
from cutaway.recipe.result import bounds, table

SCHEMA = {"layer": pl.Int64, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
SCHEMAS = {
    "finetune": FINETUNE, "graft": GRAFT, "inject": INJECT, "nextword": NEXTWORD,
    "shortcut": SHORTCUT,
}  # fmt: skip


def test_an_interval_gives_its_mean_and_its_ends() -> None:
    assert bounds(Interval(0.5, 0.4, 0.7, 0.95, 10)) == {"value": 0.5, "low": 0.4, "high": 0.7}


@pytest.mark.parametrize("value", [0.5, 3, None])
def test_a_bare_number_has_no_ends(value: float | None) -> None:
    assert bounds(value) == {"value": value}


def test_rows_come_out_in_order_and_with_the_columns_of_the_schema() -> None:
    rows = [{"layer": 2, **bounds(Interval(0.5, 0.4, 0.7, 0.95, 10))}, {"value": 1.0, "layer": 1}]
    made = table(rows, SCHEMA)
    assert made.schema == pl.Schema(SCHEMA)
    assert made.rows() == [(2, 0.5, 0.4, 0.7), (1, 1.0, None, None)]


def test_nan_is_null_in_value_and_ends() -> None:
    made = table([{"layer": 0, "value": math.nan, "low": math.nan, "high": math.nan}], SCHEMA)
    assert made.rows() == [(0, None, None, None)]


def test_a_column_the_schema_does_not_know_is_left_out() -> None:
    assert table([{"layer": 0, "value": 1.0, "note": "x"}], SCHEMA).columns == list(SCHEMA)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_run_without_rows_still_has_its_columns(name: str) -> None:
    assert table([], SCHEMAS[name]).schema == pl.Schema(SCHEMAS[name])
    assert list(SCHEMAS[name])[list(SCHEMAS[name]).index("metric") :][:4] == [
        "metric", "value", "low", "high",
    ]  # fmt: skip
