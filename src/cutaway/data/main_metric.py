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
import polars as pl

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


def majority_share(texts: TextSet) -> float:
    """The share of the rows that the most frequent class has."""
    return float(np.bincount(np.asarray(texts.labels, dtype=np.int64)).max() / len(texts))


def accuracy_warning(cell: pl.DataFrame, majority: float) -> str:
    """The sentence on a cell whose accuracy is not above the majority's; empty if it is.

    `cell` has the measured rows of one cell: metric, value, low, high.
    """
    found = {name: cell.filter(pl.col("metric") == name) for name in ("accuracy", "auc")}
    accuracy, auc = (found[name].select(pl.mean("value")).item() for name in found)
    # Equal counts may differ by rounding.
    if accuracy is None or accuracy > majority + 1e-9:
        return ""
    start = (
        f"The accuracy of this cell is {accuracy:.3f}, not above the {majority:.3f} of always "
        "answering the most frequent class"
    )
    if auc is None:
        return f"{start}."
    low, high = found["auc"].select(pl.col("low", "high").drop_nulls().first()).row(0)
    if low is None or high is None:
        return f"{start}; ROC AUC is {auc:.3f} (chance: 0.5)."
    end = "not shown to differ from chance (0.5)"
    if low > 0.5:
        end = "better than chance (0.5)"
    elif high < 0.5:
        end = "worse than chance (0.5)"
    return f"{start}; ROC AUC is {auc:.3f} [{low:.3f}, {high:.3f}], {end}."
