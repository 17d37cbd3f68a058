"""The predictions of a sweep give its scores, and its splits share no row."""

import polars as pl
import pytest

import cutaway
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.store.samples import text_digests
from tests import tiny
from tests.methods.inject.toys import RETAIN, SUMS, teach

CELL = ["regulariser", "strength", "seed", "stage"]


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_predictions_give_the_exact_match_of_every_training(kind, toys, tmp_path) -> None:
    result = teach(toys, tmp_path, kind, regulariser="none,l2sp", repeats=2, beyond=[2],
                   samples=True, lr=3e-3)  # fmt: skip
    samples, rows = result.samples, result.rows.filter(pl.col("metric") == "exact_match")
    parts = samples["part"].unique().to_list()
    assert set(parts) == {"test", "beyond 2 digits"}
    rows = rows.with_columns(part=pl.col("probe").str.replace("arithmetic ", ""))
    rows = rows.filter(pl.col("part").is_in(parts)).sort(*CELL, "part")
    correct = (pl.col("truth") == pl.col("answer")).mean().alias("value")
    again = samples.group_by(*CELL, "part").agg(correct).sort(*CELL, "part")
    assert again.select(*CELL, "part").equals(rows.select(*CELL, "part"))
    assert again["value"].to_list() == pytest.approx(rows["value"].to_list(), abs=1e-12)
    assert samples["score"].is_between(0, 1).all()
    assert samples.filter(pl.col("part") == "test").height == 5 * result.summary["test_rows"]


def test_the_splits_share_no_row_and_cover_what_the_summary_counts(toys, tmp_path) -> None:
    texts, labels = tiny.toy_sentiment(60)
    feelings = TextSet("feelings", tuple(texts), labels, "binary", ("bad", "good"))
    result = teach(toys, tmp_path, regulariser="none", retain_tasks=[feelings], task_steps=2,
                   task_batch=4)  # fmt: skip
    splits = result.record.splits
    sets = {SUMS: load_text_set(SUMS), "toy": RETAIN, "feelings": feelings}
    assert set(splits["set"]) == set(sets)
    for (name,), one in splits.group_by("set"):
        assert one["row"].n_unique() == one.height
        digests = text_digests(sets[name])
        assert all(digests[i] == found for i, found in one.select("row", "text_digest").rows())
    counts = {(n, p): len(one) for (n, p), one in splits.group_by("set", "part")}
    summary, data = result.summary, result.record.data
    assert counts[SUMS, "train"] == summary["train_rows"]
    assert counts[SUMS, "test"] == summary["test_rows"]
    assert splits.filter(pl.col("set") == "toy").height == data["retained"][0]["rows"]


def test_the_texts_of_a_fisher_are_written_down(toys, tmp_path) -> None:
    result = cutaway.fisher(model=toys["causal"], text=RETAIN, limit=7, runs=str(tmp_path))
    digests, splits = text_digests(RETAIN), result.record.splits
    assert splits["part"].to_list() == ["fisher"] * 7
    assert [digests[i] for i in splits["row"]] == splits["text_digest"].to_list()
