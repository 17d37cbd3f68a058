"""The main metric of a data set: the one that best cells, headlines and verdicts refer to.

By rule, from the task and how often each class occurs in all rows of the set:

    regression     R2
    multilabel     macro F1
    binary         average precision if class 1 has fewer than a tenth of the rows
    binary, multiclass   balanced accuracy if the largest class has more than 1.5 times the rows of
                   the smallest, otherwise accuracy
"""

from collections.abc import Mapping, Sequence
from math import isnan

import numpy as np
import polars as pl

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import suggestion
from cutaway.core.textset import Task, TextSet
from cutaway.measure.intervals import NAN, Interval, clip_interval, corrected_t
from cutaway.measure.metrics import METRICS, metric_facts, metrics_for_task

AUTO = "auto"
MAX_RATIO = 1.5
"""Rows of the largest class over those of the smallest, up to which classes count as equal."""
RARE_SHARE = 0.1
"""A class 1 with a smaller share of the rows is rare."""
NEVER_MAIN = {"ece": "the same answer to every text can be perfectly calibrated"}
"""Metrics that can't choose cells, and why."""
REFERENCE_METRICS = ("accuracy_ref", "f1_ref")
"""Of two classes, with the threshold that is best on validation rows."""


def main_metric(texts: TextSet, asked: str = AUTO, *, more: Sequence[str] = ()) -> str:
    """The metric that was asked for, or the one by rule; BadSpec if it doesn't fit the task.

    `more` are metrics of binary sets beyond those of the table.
    """
    if asked == AUTO:
        return _by_rule(texts)
    fitting = [m.name for m in metrics_for_task(texts.task) if m.name not in NEVER_MAIN]
    fitting += more if texts.task == "binary" else ()
    if asked in fitting:
        return asked
    if asked in NEVER_MAIN:
        wrong = f"metric {asked!r} can't be the main one: {NEVER_MAIN[asked]}."
    elif asked in (*METRICS, *REFERENCE_METRICS):
        wrong = f"metric {asked!r} doesn't fit {texts.name!r}, a {texts.task} set."
    else:
        wrong = f"Unknown metric {asked!r}. {suggestion(asked, fitting)}".rstrip()
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


def choices_score(
    rows: pl.DataFrame, metric: str, chosen: Mapping[int, Mapping[str, str]]
) -> Interval | None:
    """The mean score of the cells chosen in each repeat, with its interval; None without a value.

    `chosen` has the columns that identify the cell of a repeat. If all repeats chose one cell, the
    interval is that of the cell; else the corrected t interval over repeats.
    """
    found = rows.filter(pl.col("metric") == metric)
    if found.is_empty():
        return None
    picked = pl.concat(
        found.filter(pl.col("repeat") == repeat, *(pl.col(k) == v for k, v in cell.items()))
        for repeat, cell in chosen.items()
    ).drop_nulls("value")
    if picked.is_empty():
        return None
    values = picked["value"].to_numpy()
    if len({tuple(cell.values()) for cell in chosen.values()}) > 1:
        train, test = (float(picked.select(pl.mean(k)).item()) for k in ("n_train", "n_test"))
        span = corrected_t(values, n_train=train, n_test=test)
        return clip_interval(span, *metric_facts(metric).bounds)
    low, high = (next(iter(picked[end].drop_nulls()), NAN) for end in ("low", "high"))
    return Interval(float(values.mean()), low, high, 0.95, len(values))


def accuracy_warning(accuracy: Interval | None, auc: Interval | None, majority: float) -> str:
    """The sentence on an accuracy that is not above the majority's; empty if it is.

    It claims an AUC above chance, never one below: low accuracy and low AUC go together, so that
    among the runs that print the sentence an AUC of 0.5 is measured too low more often than 2.5 %.
    """
    # Equal counts may differ by rounding.
    if accuracy is None or accuracy.mean > majority + 1e-9:
        return ""
    start = (
        f"Its accuracy is {accuracy.mean:.3f}, not above the {majority:.3f} of always answering "
        "the most frequent class"
    )
    if auc is None:
        return f"{start}."
    if isnan(auc.low) or isnan(auc.high):
        return f"{start}; ROC AUC is {auc.mean:.3f} (chance: 0.5)."
    end = "better than chance (0.5)" if auc.low > 0.5 else "not shown to be above chance (0.5)"
    return f"{start}; ROC AUC is {auc.mean:.3f} [{auc.low:.3f}, {auc.high:.3f}], {end}."
