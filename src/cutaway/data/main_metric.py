"""The main metric of a data set: the one that best cells, headlines and verdicts refer to.

By rule, from the task and how often each class occurs in all rows of the set:

    regression     R2
    multilabel     macro F1
    binary         average precision if class 1 has fewer than a tenth of the rows
    binary, multiclass   balanced accuracy if the largest class has more than 1.5 times the rows of
                   the smallest, otherwise accuracy
"""

from collections.abc import Sequence

import numpy as np

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import suggestion
from cutaway.core.textset import Task, TextSet
from cutaway.measure.metrics import METRICS, metrics_for_task

AUTO = "auto"
MAX_RATIO = 1.5
"""Rows of the largest class over those of the smallest, up to which classes count as equal."""
RARE_SHARE = 0.1
"""A class 1 with a smaller share of the rows is rare."""
REFERENCE_METRICS = ("accuracy_ref", "f1_ref")
"""Of two classes, with the threshold that is best on validation rows."""


def main_metric(texts: TextSet, asked: str = AUTO, *, more: Sequence[str] = ()) -> str:
    """The metric that was asked for, or the one by rule; BadSpec if it doesn't fit the task.

    `more` are metrics of binary sets beyond those of the table.
    """
    if asked == AUTO:
        return _by_rule(texts)
    fitting = [metric.name for metric in metrics_for_task(texts.task)]
    fitting += more if texts.task == "binary" else ()
    if asked in fitting:
        return asked
    known = [*METRICS, *REFERENCE_METRICS]
    wrong = (
        f"metric {asked!r} doesn't fit {texts.name!r}, a {texts.task} set."
        if asked in known
        else f"Unknown metric {asked!r}. {suggestion(asked, known)}".rstrip()
    )
    raise BadSpec(f"{wrong} Use --metric {AUTO} or one of: {', '.join(fitting)}.")


def _by_rule(texts: TextSet) -> str:
    fixed: dict[Task, str] = {"regression": "r2", "multilabel": "f1_macro"}
    if texts.task in fixed:
        return fixed[texts.task]
    counts = np.bincount(np.asarray(texts.labels, dtype=np.int64))
    if texts.task == "binary" and counts[1:].sum() < RARE_SHARE * len(texts):
        return "ap"
    seen = counts[counts > 0]
    return "balanced_accuracy" if seen.max() > MAX_RATIO * seen.min() else "accuracy"
