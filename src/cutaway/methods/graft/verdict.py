"""The findings of graft runs in sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cutaway.measure.conclusions import Conclusion, conclude, describe, margin_of
from cutaway.measure.intervals import Difference
from cutaway.measure.shared_rows import TEST, BlockScores, shared_rows_difference

LEVEL = 0.05
MAIN_KINDS = ("base", "tuned", "learned", "removed")
"""Kinds of rows that aren't baseline masks."""
MAX_EVALUATION_SENTENCES = 12


def moved_sentence(total: int, compared: Mapping[str, str]) -> str:
    """How many weights moved, and in which precision both models were compared."""
    base, tuned, precision = (compared[name] for name in ("base", "tuned", "compared"))
    stored = "" if base == tuned == precision else f" (base: {base}, tuned: {tuned})"
    return f"{total:,} weights moved, compared in {precision}{stored}; any may be chosen."


def learning_verdict(
    scores: Mapping[str, Any], blocks: Mapping[str, BlockScores], metric: str, task: str, *,
    size: int, total: int, rows: int, compared: Mapping[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """How much of the gain a learned mask keeps, and how it compares with the baselines.

    `blocks` are the scores of every kind by blocks of test rows.
    """
    at = {kind: _value(found, metric) for kind, found in scores.items()}
    verdict = [
        f"{size:,} of {total:,} tuned weights ({size / total:.1e}) take {metric} on {task} from "
        f"{at['base']:.3f} to {at['learned']:.3f}; all of them reach {at['tuned']:.3f}."
    ]

    def compare(first: str, second: str, among: int = 1) -> Conclusion:
        found = shared_rows_difference(blocks[first], blocks[second])
        return _conclude(found, metric, rows, among=among)

    tuning = compare("tuned", "base")
    verdict.append(f"The tuned model against the base: {_outcome(tuning, rows)}.")
    kept = _kept_sentence(scores["learned"].get("relative_gain", {}))
    if tuning.kind == "shown" and tuning.difference.interval.mean > 0 and kept:
        verdict.append(kept)
    others = [k for k, v in at.items() if k not in MAIN_KINDS and not math.isnan(v)]
    for kind in others:
        found = compare("learned", kind, among=len(others))
        verdict.append(
            f"The learned mask against the {kind} mask of the same size ({at[kind]:.3f}): "
            f"{_outcome(found, rows)}."
        )
    if "removed" in at:
        verdict.append(f"Without these weights the tuned model has {at['removed']:.3f}.")
    if compared and len(set(compared.values())) > 1:
        verdict.append(moved_sentence(total, compared))
    return verdict


def _value(scores: Mapping[str, Any], metric: str) -> float:
    value = scores.get(metric, {}).get("value")
    return float("nan") if value is None else float(value)


def _kept_sentence(gain: Mapping[str, float | None]) -> str:
    """The share of the gain that the skill keeps; empty if there is none."""
    share, low, high = (gain.get(name) for name in ("value", "low", "high"))
    if share is None:
        return ""
    if low is None or high is None:
        return f"The skill keeps {share:.0%} of this gain."
    return f"The skill keeps {share:.0%} of this gain (95 % interval {low:.0%} to {high:.0%})."


def _conclude(found: Difference, metric: str, rows: int, *, among: int = 1) -> Conclusion:
    """What is concluded; `among` so many comparisons that hold the level together."""
    return conclude(found, margin=margin_of(metric), rows=rows, level=LEVEL / among)


def _outcome(found: Conclusion, rows: int) -> str:
    return describe(found, rows=rows, test=TEST)


def evaluation_verdict(
    matrix: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str, notes: Iterable[str]
) -> list[str]:
    """The metric of each skill on each set, with and without the skill."""
    verdict = []
    for task, line in matrix["learned"].items():
        for data, value in line.items():
            sentence = f"{task} on {data}: {metric} {value:.3f} with the skill, "
            sentence += f"{matrix['base'][task][data]:.3f} without."
            if "removed" in matrix:
                tuned, removed = (matrix[kind][task][data] for kind in ("tuned", "removed"))
                sentence += f" Tuned model: {tuned:.3f}, with the skill removed {removed:.3f}."
            verdict.append(sentence)
    return [*verdict[:MAX_EVALUATION_SENTENCES], *notes]


def overlap_verdict(matrix: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The largest overlap of two skills, and how many pairs share no weight."""
    pairs = [(i, j, share) for i, line in matrix.items() for j, share in line.items() if i != j]
    i, j, largest = max(pairs, key=lambda pair: pair[2])
    none = sum(share == 0 for *_, share in pairs)
    return [
        f"Largest overlap: {i} contains {largest:.1%} of the weights of {j}; {none} of "
        f"{len(pairs)} pairs share none."
    ]


def forgetting_verdict(
    table: Sequence[Mapping[str, Any]],
    means: Mapping[str, Mapping[str, float]],
    tasks: Sequence[str],
    difference: Difference,
    rows: int,
) -> list[str]:
    """How much of the first task and of all earlier tasks each strategy forgets.

    `difference` is that of the mean final scores, over `rows` test rows per task.
    """
    first = {line["way"]: line for line in table if line["task"] == tasks[0]}
    graft, plain = first["graft"], first["sequential"]
    kept, lost = means["graft"], means["sequential"]
    earlier = "the earlier task" if len(tasks) == 2 else f"the {len(tasks) - 1} earlier tasks"
    verdict = [
        f"After all tasks, {tasks[0]} (learned first) scores {graft['end']:.3f} with grafts "
        f"({graft['learned']:.3f} when learned) and {plain['end']:.3f} with sequential training "
        f"({plain['learned']:.3f} when learned); the base had {graft['before']:.3f}.",
        f"Mean forgetting over {earlier}: {kept['forgotten']:.3f} with grafts, "
        f"{lost['forgotten']:.3f} with sequential training. Mean final score over all tasks: "
        f"{kept['end']:.3f} and {lost['end']:.3f}.",
    ]
    found = _conclude(difference, "accuracy", rows)
    verdict.append(f"Grafts against sequential training at the end: {_outcome(found, rows)}.")
    if found.kind == "shown" and found.difference.interval.mean < 0:
        verdict.append(
            "The grafts keep too few weights, or there was little to forget. Raise --sparsity."
        )
    return verdict
