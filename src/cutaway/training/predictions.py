"""Predictions on a task's rows as samples, and the rows of its split as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cutaway.store.samples import prediction_frame, split_frame, text_digests
from cutaway.training.prompting import PromptedExamples, predict_from_proba
from cutaway.training.task_split import TaskSplit

PARTS = ("train", "dev", "test")


def prediction_samples(
    coordinates: Mapping[str, Any],
    examples: PromptedExamples,
    probabilities: NDArray[np.float64],
    *,
    rows: Sequence[int] | NDArray[np.integer],
    digests: Sequence[str],
    classes: Sequence[str],
) -> pl.DataFrame:
    """One line per test row: truth, answer, and the answer's probability (none for a regression).

    `examples` and `probabilities` are those of the rows; `rows` are row numbers in the set whose
    texts have these `digests`.
    """
    answers = predict_from_proba(examples, probabilities)
    numbers = np.asarray(rows).tolist()
    if examples.task == "regression":
        truth, answer = examples.labels.tolist(), answers.tolist()
        score = np.full(len(numbers), np.nan)
    else:
        truth, answer = ([classes[int(i)] for i in one] for one in (examples.labels, answers))
        score = probabilities[np.arange(len(numbers)), answers]
    return prediction_frame(
        coordinates, part="test", rows=numbers, digests=digests, truth=truth, answer=answer,
        score=score.tolist(),
    )  # fmt: skip


def split_table(*splits: TaskSplit) -> pl.DataFrame:
    """The rows that each task's set has for training, dev and test, for splits.parquet."""
    frames = []
    for split in splits:
        digests = text_digests(split.texts)
        frames += [
            split_frame(split.texts.name, part, getattr(split, part).tolist(), digests)
            for part in PARTS
        ]
    return pl.concat(frames)
