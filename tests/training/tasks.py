"""A small labelled task for the tests of training."""

import csv
from pathlib import Path

import numpy as np

from cutaway.core.textset import TextSet
from cutaway.data.tasks import TaskFile
from cutaway.training.options import TrainingSpec
from cutaway.training.task_split import TaskSplit, split_task_rows, task_from_labels
from tests.tiny import SENTENCES


def task_split(pairs: bool = False) -> TaskSplit:
    """Alternating labels, three training rows per class."""
    texts = tuple(f"{one} {SENTENCES[i % 3]}" for i, one in enumerate(SENTENCES * 4))
    labels = np.arange(len(texts)) % 2
    data = TextSet(
        "sentences", texts, labels, "binary", ("no", "yes"), pairs=texts[::-1] if pairs else None
    )
    return TaskSplit(task_from_labels(data), data, *split_task_rows(data, TrainingSpec(shots=3)))


def task_file_rows(task: TaskFile, path: Path, each: int = 4) -> str:
    """A CSV file with the task's own columns and `each` rows of every label."""
    names, labels = [*task.columns.text[0].split("+"), *task.columns.pair[:1]], raw_labels(task)
    rows = [
        {name: SENTENCES[(i + j) % len(SENTENCES)] for j, name in enumerate(names)}
        | {task.columns.label[0]: label, **task.where}
        | ({task.replace_marked: "word"} if task.replace_marked else {})
        for i, label in enumerate(labels * each)
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def raw_labels(task: TaskFile) -> list[str]:
    """The labels as the task's files have them: names, or numbers from lowest to highest."""
    if task.kind != "regression" or task.labels.order:
        return list(task.labels.order or task.labels.names or task.classes)
    scale, (low, high) = task.labels.scale, task.labels.bounds
    ends = [
        value * scale.divide / scale.multiply - scale.add + scale.subtract for value in (low, high)
    ]
    return [f"{value:g}" for value in np.linspace(*ends, 4)]
