"""Which metrics a table of rows has, and how they are named in figures."""

import polars as pl

from cutaway.measure.metrics import MAIN_METRIC_ORDER, metric_facts

VALIDATION_SUFFIX = "_val"
"""Ends the names of metrics on validation rows, by which cells are chosen."""


def metric_label(metric: str) -> str:
    """A metric's name inside a sentence."""
    return metric_facts(metric).title


def lower_is_better(metric: str) -> bool:
    """Whether the smallest value of a metric is the best."""
    return not metric_facts(metric).higher_is_better


def metric_axis_label(metric: str) -> str:
    """A metric's name on an axis or at the start of a title."""
    words = metric_label(metric)
    return words[:1].upper() + words[1:]


def measured_metrics(rows: pl.DataFrame) -> list[str]:
    """The metrics that were measured, best known first; not the scores on validation rows."""
    found = rows["metric"].drop_nulls().unique().to_list() if "metric" in rows.columns else []
    found = [name for name in found if not name.endswith(VALIDATION_SUFFIX)]
    known = [m for m in MAIN_METRIC_ORDER if m in found]
    return known + sorted(m for m in found if m not in known)
