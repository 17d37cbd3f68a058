"""A small labelled task for the tests of training."""

import numpy as np

from cutaway.core.textset import TextSet
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
