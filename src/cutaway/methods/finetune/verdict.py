"""The findings of a fine-tuning in sentences."""

import math
from collections.abc import Mapping
from dataclasses import replace

from cutaway.measure.conclusions import Conclusion, conclude, describe, margin_of, unpaired
from cutaway.measure.intervals import Interval

LEVEL = 0.05
TEST = "z test, unpaired"


def finetune_verdict(
    scores: Mapping[str, Mapping[str, Interval]],
    metric: str,
    *,
    task: str,
    steps: int,
    rows: int,
    shots: int | None,
) -> list[str]:
    """Scores before and after, against the base and the majority baseline."""
    before, after, constant = (scores[kind][metric] for kind in ("base", "tuned", "majority"))
    per_class = f" ({shots} per class)" if shots else ""
    verdict = [
        f"Fine-tuning takes {metric} on {task} from {_format(before.mean)} to "
        f"{_format(after.mean)} (95 % interval {_format(after.low)} to {_format(after.high)}, "
        f"{after.n} test rows) in {steps} steps on {rows} rows{per_class}; the majority baseline "
        f"scores {_format(constant.mean)}."
    ]
    against_base = _compare(after, before, metric)
    verdict.append(f"Against the base: {_outcome(against_base, after.n)}.")
    if not math.isnan(constant.mean):
        # A score without an interval is that of every constant prediction, and known.
        same = math.isnan(constant.low)
        known = replace(constant, low=constant.mean, high=constant.mean) if same else constant
        # The most frequent class is that of the test rows: one of at least two that were tried.
        found = _compare(after, known, metric, level=LEVEL / 2)
        verdict.append(f"Against the majority baseline: {_outcome(found, after.n)}.")
        if not (found.kind == "shown" and found.difference.interval.mean > 0):
            verdict.append(
                "To reach more, train longer, with a higher learning rate, or on more rows."
            )
    if "ece" in scores["tuned"]:
        error = {kind: _format(scores[kind]["ece"].mean) for kind in ("base", "tuned")}
        verdict.append(f"Calibration error (ECE): {error['base']} before, {error['tuned']} after.")
    return verdict


def _compare(first: Interval, second: Interval, metric: str, level: float = LEVEL) -> Conclusion:
    return conclude(unpaired(first, second), margin=margin_of(metric), rows=first.n, level=level)


def _outcome(found: Conclusion, rows: int) -> str:
    return describe(found, rows=rows, test=TEST)


def _format(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
