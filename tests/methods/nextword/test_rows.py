"""The tidy rows of nextword and quad."""

import polars as pl
import pytest

from cutaway.measure.repeats import RepeatMetrics
from cutaway.methods.nextword.rows import (
    NEXTWORD_SCHEMA,
    NextwordCell,
    curve_rows,
    failed_row,
    nextword_frame,
    score_rows,
)

CELL = NextwordCell("m", "sst2", "", "f")
REPEATS = [
    RepeatMetrics(repeat, 80, 0, 20, {"accuracy": value, "c": 10.0**repeat})
    for repeat, value in enumerate((0.7, 0.8, 0.9))
]


def test_there_is_a_row_per_repeat_and_metric() -> None:
    table = nextword_frame(score_rows(CELL, REPEATS))
    assert table.columns == list(NEXTWORD_SCHEMA) and table.height == 6
    accuracy = table.filter(pl.col("metric") == "accuracy")
    assert accuracy["value"].to_list() == [0.7, 0.8, 0.9]
    assert accuracy["repeat"].to_list() == [0, 1, 2]
    assert set(accuracy["n_train"]) == {80} and set(accuracy["n_test"]) == {20}
    assert set(table["status"]) == {"done"}


def test_the_interval_is_that_of_the_mean_and_the_same_in_all_repeats() -> None:
    table = nextword_frame(score_rows(CELL, REPEATS))
    for metric in ("accuracy", "c"):
        rows = table.filter(pl.col("metric") == metric)
        assert rows["low"].n_unique() == rows["high"].n_unique() == 1
        assert rows["low"][0] <= rows["value"].mean() <= rows["high"][0]
    accuracy = table.filter(pl.col("metric") == "accuracy")
    assert accuracy["low"][0] >= 0 and accuracy["high"][0] <= 1


def test_a_failed_cell_has_its_reason_and_no_value() -> None:
    table = nextword_frame([failed_row(CELL, "f: no token", "ap")])
    (row,) = table.iter_rows(named=True)
    assert row["status"] == "failed" and row["reason"] == "f: no token"
    assert row["metric"] == "ap" and row["value"] is row["low"] is row["high"] is None


def test_a_curve_has_a_row_per_step_and_known_metric() -> None:
    curve = [{"step": 0, "held_ce": 3.0, "loss": None}, {"step": 5, "held_ce": 2.0, "loss": 2.5}]
    rows = curve_rows(CELL, curve, ("loss", "held_ce"), n_train=9, n_test=3)
    found = [(row["step"], row["metric"], row["value"]) for row in rows]
    assert found == [(0, "held_ce", 3.0), (5, "loss", 2.5), (5, "held_ce", 2.0)]
    table = nextword_frame(rows)
    assert set(table["n_train"]) == {9} and table["low"].null_count() == 3


@pytest.mark.parametrize("value", [float("nan"), None])
def test_undefined_values_are_null(value) -> None:
    rows = [{**CELL.coordinates, "metric": "auroc", "value": value}]
    assert nextword_frame(rows)["value"].to_list() == [None]
