"""The findings of a fine-tuning in sentences."""

import math
from collections.abc import Mapping

from cutaway.measure.intervals import Interval


def finetune_verdict(
    scores: Mapping[str, Mapping[str, Interval]],
    metric: str,
    *,
    task: str,
    steps: int,
    rows: int,
    shots: int | None,
) -> list[str]:
    """Scores before and after, and whether they beat the majority baseline."""
    before, after, constant = (scores[kind][metric] for kind in ("base", "tuned", "majority"))
    per_class = f" ({shots} per class)" if shots else ""
    verdict = [
        f"Fine-tuning takes {metric} on {task} from {_format(before.mean)} to "
        f"{_format(after.mean)} (95 % interval {_format(after.low)} to {_format(after.high)}, "
        f"{after.n} test rows) in {steps} steps on {rows} rows{per_class}; the majority baseline "
        f"scores {_format(constant.mean)}."
    ]
    if not after.low > constant.mean and not math.isnan(constant.mean):
        verdict.append(
            "This is not clearly better than the majority baseline: train longer, with a higher "
            "learning rate, or on more rows."
        )
    elif not after.mean > before.mean:
        verdict.append("The base was as good before: training brought no measurable gain.")
    if "ece" in scores["tuned"]:
        error = {kind: _format(scores[kind]["ece"].mean) for kind in ("base", "tuned")}
        verdict.append(f"Calibration error (ECE): {error['base']} before, {error['tuned']} after.")
    return verdict


def _format(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
