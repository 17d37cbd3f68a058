"""Grids whose repeats share their test rows, and learning curves: intervals and summaries."""

import json

import numpy as np
import polars as pl
import pytest

import cutaway
from cutaway.core.textset import TextSet
from cutaway.measure.intervals import corrected_t, wilson
from tests.tiny import SENTENCES, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny("gpt2", tmp_path_factory.mktemp("shared") / "gpt2"))


def words(n=90, *, classes=2, parts=None) -> TextSet:
    """Sentences whose label can be read off their last word, but for every fifth."""
    rng = np.random.default_rng(0)
    ends = ("good.", "bad.", "red.")[:classes]
    labels = np.arange(n) % classes
    said = np.where(np.arange(n) % 5 == 0, rng.integers(0, classes, n), labels)
    texts = [f"{SENTENCES[rng.integers(7)][:20]} {i} is {ends[said[i]]}" for i in range(n)]
    task = "binary" if classes == 2 else "multiclass"
    return TextSet("ends", tuple(texts), labels=labels, task=task, classes=ends, parts=parts)


def grid(model, tmp_path, data, **options):
    settings = {"layers": "0,2", "classifier": "lda_shrink", "repeats": 4, "quiet": True,
                "baselines": "majority,bow", "runs": str(tmp_path / "runs")}  # fmt: skip
    return cutaway.probe(model=model, data=data, **{**settings, **options})


def of(rows, metric, kind="probe"):
    return rows.filter((pl.col("metric") == metric) & (pl.col("kind") == kind))


FIXED = np.array(["train"] * 60 + ["test"] * 30)


@pytest.mark.parametrize(("protocol", "parts"), [("fixed", FIXED), ("kshot", None)])
def test_repeats_that_share_test_rows_are_as_uncertain_as_these_rows(
    model, tmp_path, protocol, parts
):
    result = grid(model, tmp_path, words(parts=parts), protocol=protocol, shots=6)
    cell = of(result.rows, "accuracy").filter(pl.col("layers") == "2")
    mean, low, high = (cell[name].mean() for name in ("value", "low", "high"))
    # Repeats answer the same rows again: as uncertain as rows whose answers differ between repeats,
    # more than as many independent rows as answers.
    distinct, answers = (30 if protocol == "fixed" else 90), int(cell["n_test"].sum())
    assert answers > distinct
    of_rows, of_answers = (wilson(mean * n, n) for n in (distinct, answers))
    assert high - low > of_answers.high - of_answers.low
    assert high - low < 1.3 * (of_rows.high - of_rows.low)
    assert of(result.rows, "auc")["low"].null_count() == 0
    assert f"[{low:.3f}, {high:.3f}]" in result.summary["verdict"][0] or mean != pytest.approx(
        result.summary["headline"]["value"]
    )


def test_one_split_has_an_interval_for_every_metric_of_its_test_rows(model, tmp_path):
    parts = np.array(["train"] * 50 + ["dev"] * 10 + ["test"] * 30)
    rows = grid(model, tmp_path, words(parts=parts), protocol="fixed").rows
    for metric in ("accuracy", "accuracy_ref", "f1", "f1_ref", "auc", "ap", "mcc", "ece"):
        assert of(rows, metric)["low"].null_count() == 0, metric


def test_a_curves_small_sizes_have_intervals_of_their_rows_and_repeats(model, tmp_path):
    result = grid(model, tmp_path, words(), protocol="curve", train_sizes=[0.2, 1.0])
    small = of(result.rows, "mcc").filter((pl.col("layers") == "2") & (pl.col("n_train") < 20))
    plain = corrected_t(small["value"].to_list(), n_train=63, n_test=small["n_test"][0])
    low, mean, high = small["low"][0], small["value"].mean(), small["high"][0]
    assert low < mean < high
    assert 0.3 < (high - low) / (plain.high - plain.low) < 1.0


def test_only_the_largest_size_asked_for_counts_in_the_summary(model, tmp_path):
    result = grid(model, tmp_path, words(), protocol="curve", train_sizes=[0.95, 1.0])
    cells = of(result.rows, "accuracy").filter(pl.col("n_train") == pl.col("n_train").max())
    means = cells.group_by("layers").agg(pl.col("value").mean())
    assert result.rows["n_train"].n_unique() > 1
    assert result.summary["headline"]["value"] == pytest.approx(means["value"].max())
    assert "in each of 4 repeats, with 63 training rows;" in result.summary["verdict"][0]


@pytest.mark.parametrize("classifier", ["nb", "qda", "logistic"])
def test_the_areas_of_the_roc_figure_are_those_of_the_metric(model, tmp_path, classifier):
    data = words(classes=3)
    result = grid(model, tmp_path, data, layers="2", classifier=classifier, repeats=1)
    details = json.loads((result.path / "details.json").read_text())
    areas = [d["auc"] for d in details if d["figure"] == "roc"]
    assert len(areas) == 3
    assert np.mean(areas) == pytest.approx(of(result.rows, "auc")["value"][0])
