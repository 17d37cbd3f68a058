"""Tests of the table `scores`: one line per cell, with the run's main metric."""

import polars as pl
import pytest

from cutaway.store.results import results
from cutaway.store.scores import run_scores
from tests.store.samples import keep

CELL = {"model": "m", "data": "d", "layers": "1", "pool": "last", "classifier": "lda"}


def row(value, metric="accuracy", repeat=0, kind="probe", n_train=70, **more):
    sizes = {"n_train": n_train, "n_val": 10, "n_test": 20}
    ends = {"low": 0.4, "high": 0.9, "status": "done", "reason": ""}
    made = {"kind": kind, "repeat": repeat, **sizes, "metric": metric, "value": value, **ends}
    return {**CELL, **made, **more}


def scores(tmp_path, rows, **fields):
    record = keep(tmp_path, pl.DataFrame(rows), **{"summary": {"metric": "accuracy"}, **fields})
    return run_scores(record)


def test_a_cell_has_one_line_with_the_mean_over_its_repeats(tmp_path) -> None:
    rows = [row(0.6), row(0.8, repeat=1, n_train=71), row(577.0, "parameters")]
    (line,) = scores(tmp_path, rows).to_dicts()
    assert line["value"] == pytest.approx(0.7)
    assert (line["metric"], line["repeats"], line["low"], line["high"]) == ("accuracy", 2, 0.4, 0.9)
    assert (line["n_train"], line["layers"], line["baseline"]) == (71, "1", None)
    assert "repeat" not in line


def test_the_points_of_a_learning_curve_are_cells(tmp_path) -> None:
    rows = [row(0.5 + n / 100, repeat=r, n_train=n) for r in (0, 1) for n in (7, 8, 40)]
    found = scores(tmp_path, rows).sort("n_train")
    assert found["n_train"].to_list() == [7, 8, 40]
    assert found["value"].to_list() == pytest.approx([0.57, 0.58, 0.9])


def test_controls_are_no_scores_and_the_best_baseline_is_beside_the_cell(tmp_path) -> None:
    baselines = [row(v, kind="baseline", layers="-", classifier=c, pool="text")
                 for c, v in (("majority", 0.5), ("bow", 0.65), ("tfidf", 0.6))]  # fmt: skip
    rows = [row(0.8), row(0.97, kind="control"), row(0.55, kind="twin"), *baselines]
    (line,) = scores(tmp_path, rows).to_dicts()
    assert (line["kind"], line["value"], line["baseline"]) == ("probe", 0.8, 0.65)


def test_each_data_set_has_the_metric_that_its_finding_names(tmp_path) -> None:
    rows = [row(0.9), row(0.7, "auc"), row(0.3, "r2", data="e"), row(0.2, "mse", data="e")]
    named = {"metric": "auc", "findings": [{"data": "d", "metric": "auc"},
                                           {"data": "e", "metric": "r2"}]}  # fmt: skip
    found = scores(tmp_path, rows, summary=named).sort("data")
    assert found.select("data", "metric", "value").rows() == [("d", "auc", 0.7), ("e", "r2", 0.3)]


@pytest.mark.parametrize(
    ("metrics", "main"),
    [
        (("r2", "precision@1", "kl"), "precision@1"),
        (("lm_loss", "exact_match"), "exact_match"),
        (("mass",), "mass"),
        (("weights", "density"), None),
    ],
)
def test_a_run_that_names_no_metric_has_its_best_known_one(tmp_path, metrics, main) -> None:
    found = scores(tmp_path, [row(0.5, m) for m in metrics], summary={})
    assert found["metric"].to_list() == ([main] if main else [])


def test_failed_cells_and_dev_scores_are_no_scores(tmp_path) -> None:
    rows = [row(None, layers="2", status="failed"), row(0.9, part="dev"), row(0.8, part="test")]
    assert scores(tmp_path, rows)["value"].to_list() == [0.8]


def test_seeds_with_an_interval_each_have_the_interval_of_their_mean(tmp_path) -> None:
    rows = [{"base": "b", "seed": s, "metric": "accuracy", "value": v, "low": v - 0.3,
             "high": v + 0.1} for s, v in enumerate((0.8, 0.9, 0.95))]  # fmt: skip
    (line,) = scores(tmp_path, rows).to_dicts()
    assert line["repeats"] == 3
    assert 0.55 < line["low"] < line["value"] < line["high"] == 1.0


def test_scores_of_all_runs_are_one_table(tmp_path) -> None:
    keep(tmp_path, pl.DataFrame([row(0.8), row(0.4, "f1")]), address="a1", summary={})
    keep(tmp_path, pl.DataFrame({"layers": [3], "value": [1.0]}), method="shortcut", address="b2")
    runs = results(tmp_path)
    assert runs.query("select address, layers, value from scores").rows() == [("a1", "1", 0.8)]
    assert "scores" in str(runs.query("show tables").to_dicts())
    assert results(tmp_path / "none").query("select * from scores").shape == (0, 2)
