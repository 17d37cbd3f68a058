"""Predictions as samples: truth, answer and score of every row, from which metrics follow."""

import numpy as np
import polars as pl
import pytest

from cutaway.core.textset import TextSet
from cutaway.store.samples import text_digests
from cutaway.training.options import TrainingSpec
from cutaway.training.predictions import prediction_samples, split_table
from cutaway.training.task_model import make_task_model
from cutaway.training.task_scores import metric_values
from cutaway.training.task_split import TaskSplit, split_task_rows, task_from_labels
from tests.tiny import SENTENCES
from tests.training.tasks import task_split


def samples_of(model, split: TaskSplit) -> tuple[pl.DataFrame, dict[str, float]]:
    proba, examples = model.predict_proba(split.test), model.examples.take(split.test)
    table = prediction_samples(
        {"kind": "base"}, examples, proba, rows=split.test, digests=text_digests(split.texts),
        classes=split.texts.classes,
    )  # fmt: skip
    return table, metric_values(examples, proba, [examples.metric])


def test_accuracy_and_texts_follow_from_the_samples(tiny_lm) -> None:
    split = task_split()
    table, metrics = samples_of(make_task_model(tiny_lm("llama"), split, "head"), split)
    assert (table["truth"] == table["answer"]).mean() == metrics["accuracy"]
    assert table["row"].to_list() == split.test.tolist()
    truth = [split.texts.classes[i] for i in split.texts.labels[split.test]]
    assert table["truth"].to_list() == truth
    assert table["text_digest"].to_list() == [text_digests(split.texts)[i] for i in split.test]
    assert table["score"].is_between(0.5, 1.0).all()
    assert set(table["part"]) == {"test"} and set(table["kind"]) == {"base"}


def test_numbers_are_kept_exactly(tiny_lm) -> None:
    labels = np.random.default_rng(0).random(28)
    texts = TextSet("numbers", SENTENCES * 4, labels, "regression")
    split = TaskSplit(task_from_labels(texts), texts, *split_task_rows(texts, TrainingSpec()))
    table, metrics = samples_of(make_task_model(tiny_lm("llama"), split, "head"), split)
    truth, answer = (table[name].cast(pl.Float64).to_numpy() for name in ("truth", "answer"))
    assert np.array_equal(truth, labels[split.test])
    assert metrics["pearson"] == pytest.approx(np.corrcoef(truth, answer)[0, 1], abs=1e-12)
    assert table["score"].null_count() == len(table)


def test_the_rows_of_a_split_are_listed() -> None:
    split = task_split()
    table = split_table(split)
    for part in ("train", "dev", "test"):
        found = table.filter(pl.col("part") == part)
        assert found["row"].to_list() == getattr(split, part).tolist()
    assert set(table["set"]) == {"sentences"}
