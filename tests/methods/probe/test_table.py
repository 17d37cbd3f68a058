import polars as pl

from cutaway.measure.metrics import METRICS, Metric
from cutaway.methods.probe import table
from cutaway.methods.probe.aggregate import aggregate_cells, chosen_cell
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows


def test_a_summary_has_one_line_per_cell_and_metric() -> None:
    rows = probe_rows(layers=("1", "2"), metrics=("accuracy", "f1"), baselines=False)
    found = table.summary_table(rows)
    assert found.height == 4
    assert found.columns == list(table.SUMMARY_COLUMNS)
    assert (found["low"] <= found["mean"]).all() and (found["mean"] <= found["high"]).all()


def test_a_ranking_is_best_first_and_lists_each_text_baseline_once() -> None:
    rows = probe_rows(models=("tiny-lm", "small-lm"), sizes=(140, 1400))
    found = table.ranking_table(rows, FakeRecord(rows), most=5)
    assert found["mean"].is_sorted(descending=True)
    assert sorted(found.filter(pl.col("kind") == "baseline")["classifier"]) == [
        "bow",
        "majority",
        "tfidf",
    ]
    assert found.filter(pl.col("kind") == "probe").height == 5
    assert "model" in found.columns and "data" not in found.columns


def test_key_numbers_name_the_best_score_its_baselines_and_the_cells() -> None:
    rows = probe_rows()
    best, *others = table.key_numbers(rows, FakeRecord(rows))
    assert best.label == "accuracy" and best.note.startswith("layer ")
    assert float(best.value) == round(table.ranking_table(rows, FakeRecord(rows))["mean"][0], 3)
    assert [one.label for one in others] == [
        "most frequent class", "bag of words", "TF-IDF words", "cells measured"
    ]  # fmt: skip


def test_a_run_whose_cells_all_failed_has_no_key_numbers() -> None:
    rows = failed_rows().filter(pl.col("classifier") == "qda")
    assert table.key_numbers(rows, FakeRecord(rows)) == []


def test_a_new_metric_that_should_be_low_is_ranked_lowest_first(monkeypatch) -> None:
    mistakes = Metric("mistakes", higher_is_better=False, function=max, needs="decision")
    monkeypatch.setitem(METRICS, "mistakes", mistakes)
    rows = probe_rows(layers=("1", "2", "3"), metrics=("mistakes",))
    ranking = table.ranking_table(rows, FakeRecord(rows, summary={"metric": "mistakes"}))
    for kind in ("probe", "baseline"):
        means = ranking.filter(pl.col("kind") == kind)["mean"].to_list()
        assert means == sorted(means)
    top = chosen_cell(aggregate_cells(rows), "mistakes")
    assert top["mean"] == ranking.filter(pl.col("kind") == "probe")["mean"].min()
