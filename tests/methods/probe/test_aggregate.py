import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.probe import aggregate as cells
from cutaway.report.summary import failed_cells
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows


def test_a_cell_is_the_mean_of_its_repeats_with_the_rows_own_interval() -> None:
    rows = probe_rows(layers=("3",), baselines=False)
    cell = cells.aggregate_cells(rows).row(0, named=True)
    assert cell["mean"] == pytest.approx(rows["value"].mean())
    assert (cell["low"], cell["high"]) == (rows["low"][0], rows["high"][0])
    assert cell["repeats"] == 4


def test_layers_come_in_their_own_order_however_rows_are_sorted() -> None:
    rows = probe_rows(baselines=False).sort("layers")
    assert cells.aggregate_cells(rows)["layers"].to_list() == [str(n) for n in range(13)]


def test_folds_that_differ_by_a_row_are_one_training_size() -> None:
    rows = probe_rows(layers=("3",), baselines=False)
    rows = rows.with_columns(n_train=pl.Series([80, 80, 81, 81]))
    assert cells.aggregate_cells(rows).height == 1


def test_a_learning_curve_keeps_its_sizes_apart_and_full_size_is_the_largest() -> None:
    table = cells.aggregate_cells(
        probe_rows(sizes=(100, 200, 1400), layers=("3",), baselines=False)
    )
    assert table["size"].to_list() == [100, 200, 1400]
    assert cells.largest_training_size(table)["size"].to_list() == [1400]


def test_failed_cells_have_no_mean_and_are_counted_with_their_reason() -> None:
    table = cells.aggregate_cells(failed_rows())
    failed = table.filter(pl.col("failed") > 0)
    assert failed["mean"].null_count() == failed.height > 0
    assert set(failed["reason"]) == {"ValueError: singular matrix"}
    assert "qda" not in cells.scored_probe_cells(table)["classifier"].to_list()
    listed = failed_cells(failed_rows())
    assert listed["layers"][0].split()[:3] == ["0", "1", "2"]


@pytest.mark.parametrize(("metric", "layer"), [("accuracy", "2"), ("mse", "1")])
def test_the_best_cell_is_the_lowest_only_where_lower_is_better(metric: str, layer: str) -> None:
    rows = pl.DataFrame(
        {"layers": ["1", "2"], "metric": [metric] * 2, "value": [0.1, 0.9], "repeat": [0, 0]}
    )
    assert cells.chosen_cell(cells.aggregate_cells(rows), metric)["layers"] == layer


def test_foreign_logs_with_few_columns_become_probe_cells() -> None:
    logs = pl.DataFrame({"model": ["gpt2"], "layers": ["3"], "metric": ["f1"], "value": [0.5]})
    cell = cells.aggregate_cells(logs).row(0, named=True)
    assert (cell["kind"], cell["low"], cell["mean"]) == ("probe", None, 0.5)


def test_the_run_chooses_its_metric_unless_it_was_not_measured() -> None:
    rows = probe_rows(layers=("1",), metrics=("f1", "auc"))
    assert cells.main_metric(rows, FakeRecord(rows, summary={"metric": "auc"})) == "auc"
    assert cells.main_metric(rows, FakeRecord(rows, summary={"metric": "r2"})) == "f1"
    with pytest.raises(Missing):
        cells.main_metric(rows.clear(), FakeRecord(rows))


@pytest.mark.parametrize(
    ("metric", "low", "high"), [("accuracy", 0.0, 1.0), ("mcc", -0.5, 1.0), ("mdl_bits", -0.5, 1.5)]
)
def test_an_interval_never_leaves_the_range_of_its_metric(metric, low, high) -> None:
    rows = pl.DataFrame({"metric": [metric], "value": [0.9], "low": [-0.5], "high": [1.5]})
    cell = cells.aggregate_cells(rows).row(0, named=True)
    assert (cell["low"], cell["high"]) == (low, high)
    bare = cells.aggregate_cells(rows.with_columns(low=None, high=None)).row(0, named=True)
    assert (bare["low"], bare["high"]) == (None, None)
