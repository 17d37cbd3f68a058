import numpy as np
import pytest

from cutaway.measure.intervals import wilson
from cutaway.measure.repeats import RepeatMetrics, ResamplingInfo, mean_interval
from cutaway.methods.probe.rows import (
    COORDINATES,
    SCHEMA,
    ProbeCell,
    cell_rows,
    failed_row,
    probe_table,
)

CELL = ProbeCell("m", "d", "7", "last", "lda")


def repeats(values, size=None, n_train=70):
    return [RepeatMetrics(i, n_train, 10, 20, {"accuracy": v}, size) for i, v in enumerate(values)]


def test_every_repeat_has_its_row_with_the_interval_of_the_mean():
    values = [0.6, 0.62, 0.65]
    table = probe_table(cell_rows(CELL, repeats(values)))
    mean = mean_interval(values, ResamplingInfo(70, 20), share=True)
    assert table["value"].to_list() == values
    assert set(table["low"]) == {mean.low}
    assert set(table["high"]) == {mean.high}


def test_folds_whose_sizes_differ_by_one_share_an_interval():
    folds = [*repeats([0.5, 0.7]), RepeatMetrics(2, 71, 10, 19, {"accuracy": 0.9})]
    assert probe_table(cell_rows(CELL, folds))["low"].n_unique() == 1


def test_sizes_of_a_learning_curve_have_their_own_intervals():
    curve = repeats([0.5, 0.6], size=10, n_train=10) + repeats([0.8, 0.9], size=70)
    assert probe_table(cell_rows(CELL, curve)).group_by("n_train").agg().height == 2
    assert probe_table(cell_rows(CELL, curve))["low"].n_unique() == 2


def test_one_repeat_of_a_share_has_a_wilson_interval():
    row = probe_table(cell_rows(CELL, repeats([0.8]))).row(0, named=True)
    expected = wilson(16, 20)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))


def test_a_value_that_is_no_number_is_empty_not_nan():
    table = probe_table(cell_rows(CELL, repeats([np.nan, np.nan])))
    assert table["value"].to_list() == [None, None]


def test_a_failed_cell_is_a_row_with_its_reason():
    row = probe_table([failed_row(CELL, "singular", "accuracy")]).row(0, named=True)
    assert (row["status"], row["reason"], row["value"]) == ("failed", "singular", None)


def test_rows_have_the_promised_columns_in_order():
    table = probe_table(cell_rows(CELL, repeats([0.5])))
    assert table.columns == list(SCHEMA)
    assert set(COORDINATES) <= set(table.columns)


def test_rows_do_not_depend_on_the_order_of_the_pieces():
    first, second = cell_rows(CELL, repeats([0.5, 0.6])), [failed_row(CELL, "x", "f1")]
    assert probe_table([*first, *second]).equals(probe_table([*second, *reversed(first)]))


def test_the_interval_of_a_share_stays_between_0_and_1():
    table = probe_table(cell_rows(CELL, repeats([0.7, 1.0, 1.0])))
    assert 0.0 < table["low"].min() < 0.9 < table["high"].max() < 1.0
    perfect = probe_table(cell_rows(CELL, repeats([1.0, 1.0, 1.0])))
    assert perfect["high"].max() == 1.0
    assert 0.8 < perfect["low"].min() < 1.0
