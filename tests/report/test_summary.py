import polars as pl
import pytest

from cutaway.report.summary import by_layer, failed_cells, summarize_cells


def test_the_interval_of_a_mean_over_seeds_is_that_of_the_seeds() -> None:
    seeds = {"regulariser": "ewc", "metric": "exact_match", "seed": [0, 1, 2]}
    rows = pl.DataFrame(seeds | {"value": [0.9, 0.7, 0.8], "low": [0.88, 0.6, 0.7], "high": 0.95})
    found = summarize_cells(rows).row(0, named=True)
    # 0.058 of the seeds and the intervals of their rows; a share ends at 1.
    assert (found["mean"], found["repeats"]) == (pytest.approx(0.8), 3)
    assert (found["low"], found["high"]) == (pytest.approx(0.6406, abs=1e-3), 1.0)
    one = summarize_cells(rows.head(1)).row(0, named=True)
    assert (one["low"], one["high"]) == (0.88, 0.95)


def test_failures_are_listed_in_the_columns_of_their_own_method() -> None:
    rows = pl.DataFrame(
        {"model": ["m"] * 3, "features": ["f", "p", "p"], "step": [None] * 3, "metric": ["f1"] * 3,
         "value": [0.5, None, None], "status": ["done", "failed", "failed"],
         "reason": ["", "no memory", "no memory"]}
    )  # fmt: skip
    listed = failed_cells(rows)
    assert listed.columns == ["model", "features", "reason", "times"]
    assert listed.row(0) == ("m", "p", "no memory", 2)


def test_rows_without_a_status_have_no_failures() -> None:
    assert failed_cells(pl.DataFrame({"metric": ["f1"], "value": [0.5]})).is_empty()


def test_layers_are_sorted_by_number_then_mixes_then_rows_without_a_layer() -> None:
    rows = pl.DataFrame({"layers": ["-", "mean:all", "10", "2"]})
    assert by_layer(rows)["layers"].to_list() == ["2", "10", "mean:all", "-"]


def test_rows_without_intervals_get_a_mean_per_cell() -> None:
    rows = pl.DataFrame({"layer": [1, 1, 2], "metric": "kl", "value": [1.0, 3.0, 5.0]})
    assert summarize_cells(rows).rows() == [(1, "kl", 2.0, 2), (2, "kl", 5.0, 1)]
