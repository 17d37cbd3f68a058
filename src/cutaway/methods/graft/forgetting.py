"""The forgetting table of a sequence of tasks: scores before, when learned, and at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.measure.intervals import Difference
from cutaway.measure.shared_rows import mean_difference, shared_rows_difference
from cutaway.methods.graft.rows import PSEUDO, read_block_scores
from cutaway.methods.graft.verdict import forgetting_verdict
from cutaway.recipe.result import Row

STRATEGIES = ("graft", "sequential")


def score_at(rows: Sequence[Row], kind: str, task: str, stage: int, metric: str) -> float:
    """One score; NaN when it was not measured."""
    wanted = (kind, task, stage, metric)
    for row in rows:
        if (row["kind"], row["task"], row["step"], row["metric"]) == wanted:
            return float("nan") if row["value"] is None else float(row["value"])
    return float("nan")


def end_difference(
    rows: Sequence[Row], metrics: Mapping[str, str], worth: Mapping[str, float]
) -> Difference:
    """The mean score of grafts less that of sequential training at the end, over all tasks.

    The tasks' test rows are independent. `worth` are the rows that a perfect score is worth.
    """
    found = []
    for task, metric in metrics.items():
        both = [
            read_block_scores(
                [
                    r
                    for r in rows
                    if (r["kind"], r["task"], r["step"]) == (kind, task, len(metrics))
                ],
                metric,
                worth[task],
            )
            for kind in STRATEGIES
        ]
        found.append(shared_rows_difference(*both))
    return mean_difference(found)


def forgetting_by_task(
    rows: Sequence[Row], tasks: Sequence[str], metrics: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Per strategy and task: score before, when learned, at the end, and the loss since."""
    table = []
    for strategy in STRATEGIES:
        for stage, task in enumerate(tasks, start=1):
            metric = metrics[task]
            learned = score_at(rows, strategy, task, stage, metric)
            end = score_at(rows, strategy, task, len(tasks), metric)
            table.append(
                {
                    "way": strategy,
                    "task": task,
                    "metric": metric,
                    "before": score_at(rows, "base", task, 0, metric),
                    "learned": learned,
                    "end": end,
                    "forgotten": learned - end,
                }
            )
    return table


def summarise_forgetting(
    rows: Sequence[Row], metrics: Mapping[str, str], worth: Mapping[str, float], test_rows: int
) -> dict[str, Any]:
    """The forgetting table, means over tasks, and the verdict; tasks in the order of `metrics`."""
    tasks, difference = list(metrics), end_difference(rows, metrics, worth)
    table = forgetting_by_task(rows, tasks, metrics)
    means = {strategy: _means(table, strategy) for strategy in STRATEGIES}
    return {
        "verb": "continual",
        "tasks": tasks,
        "forgetting": table,
        "means": means,
        "sizes": [row["value"] for row in rows if row["metric"] == "size"],
        "verdict": forgetting_verdict(table, means, tasks, difference, test_rows),
    }


def _means(table: Sequence[Mapping[str, Any]], strategy: str) -> dict[str, float]:
    own = [line for line in table if line["way"] == strategy]
    # Nothing was learned after the last task, so it can't have been forgotten.
    return {
        "end": float(np.mean([line["end"] for line in own])),
        "forgotten": float(np.mean([line["forgotten"] for line in own[:-1]])),
    }


def base_scores(rows: Sequence[Row]) -> dict[str, Any]:
    """The base's score on every task."""
    return {
        f"base on {row['task']}": row["value"]
        for row in rows
        if row["kind"] == "base" and row["metric"] != "ece" and not row["metric"].startswith(PSEUDO)
    }
