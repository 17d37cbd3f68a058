"""What a course of tasks came to: who remembers what, in a table and in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.recipe.table import Row

STRATEGIES = ("graft", "sequential")


def score_at(rows: Sequence[Row], kind: str, task: str, stage: int, metric: str) -> float:
    """One score; NaN where it was not measured."""
    found = [
        row["value"]
        for row in rows
        if (row["kind"], row["task"], row["step"], row["metric"]) == (kind, task, stage, metric)
    ]
    return float("nan") if not found or found[0] is None else float(found[0])


def forgetting_by_task(
    rows: Sequence[Row], tasks: Sequence[str], metrics: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Per way and task: before, right after learning it, at the end, and what was lost since."""
    table = []
    for way in STRATEGIES:
        for stage, task in enumerate(tasks, start=1):
            metric = metrics[task]
            learned = score_at(rows, way, task, stage, metric)
            end = score_at(rows, way, task, len(tasks), metric)
            table.append(
                {
                    "way": way,
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
    rows: Sequence[Row], tasks: Sequence[str], metrics: Mapping[str, str]
) -> dict[str, Any]:
    """The findings: the forgetting table, means over tasks, sentences."""
    table = forgetting_by_task(rows, tasks, metrics)
    means = {way: _means(table, way, len(tasks)) for way in STRATEGIES}
    return {
        "verb": "continual",
        "tasks": list(tasks),
        "forgetting": table,
        "means": means,
        "sizes": [row["value"] for row in rows if row["metric"] == "size"],
        "verdict": forgetting_verdict(table, means, tasks),
    }


def _means(table: Sequence[Mapping[str, Any]], way: str, tasks: int) -> dict[str, float]:
    own = [line for line in table if line["way"] == way]
    # The last task has had no time to be forgotten.
    return {
        "end": float(np.mean([line["end"] for line in own])),
        "forgotten": float(np.mean([line["forgotten"] for line in own[: tasks - 1]])),
    }


def forgetting_verdict(
    table: Sequence[Mapping[str, Any]],
    means: Mapping[str, Mapping[str, float]],
    tasks: Sequence[str],
) -> list[str]:
    """What follows from the numbers, in sentences."""
    first = {line["way"]: line for line in table if line["task"] == tasks[0]}
    graft, plain = first["graft"], first["sequential"]
    said = [
        f"{tasks[0]}, learned first, ends at {graft['end']:.3f} with grafts (it was "
        f"{graft['learned']:.3f}) and at {plain['end']:.3f} with plain training (it was "
        f"{plain['learned']:.3f}); the base had {graft['before']:.3f}."
    ]
    kept, lost = means["graft"], means["sequential"]
    earlier = "the earlier task" if len(tasks) == 2 else f"the {len(tasks) - 1} earlier tasks"
    said.append(
        f"Over {earlier} grafts forget {kept['forgotten']:.3f} on "
        f"average, plain training {lost['forgotten']:.3f}; over all tasks they end at "
        f"{kept['end']:.3f} and {lost['end']:.3f}."
    )
    if kept["end"] < lost["end"]:
        said.append("Plain training ends higher here: the grafts hold too few weights, or there "
                    "was little to forget. Raise --sparsity.")  # fmt: skip
    return said


def base_scores(rows: Sequence[Row]) -> dict[str, Any]:
    """The base's score on every task."""
    return {
        f"base on {row['task']}": row["value"]
        for row in rows
        if row["kind"] == "base" and row["metric"] != "ece"
    }
