"""The findings of a fine-tuning in sentences."""

import math
from collections.abc import Mapping

from cutaway.measure.conclusions import Conclusion, conclude, describe, margin_of
from cutaway.measure.intervals import Interval
from cutaway.measure.shared_rows import TEST, BlockScores, shared_rows_difference

LEVEL = 0.05


def finetune_verdict(
    scores: Mapping[str, Mapping[str, Interval]],
    blocks: Mapping[str, BlockScores],
    metric: str,
    *,
    task: str,
    steps: int,
    rows: int,
    shots: int | None,
) -> list[str]:
    """Scores before and after, against the base and the majority baseline.

    `blocks` are the scores of base, tuned model and majority baseline by blocks of test rows.
    """
    before, after, constant = (scores[kind][metric] for kind in ("base", "tuned", "majority"))
    per_class = f" ({shots} per class)" if shots else ""
    verdict = [
        f"Fine-tuning takes {metric} on {task} from {_format(before.mean)} to "
        f"{_format(after.mean)} (95 % interval {_format(after.low)} to {_format(after.high)}, "
        f"{after.n} test rows) in {steps} steps on {rows} rows{per_class}; the majority baseline "
        f"scores {_format(constant.mean)}."
    ]

    def compare(other: str, level: float) -> Conclusion:
        found = shared_rows_difference(blocks["tuned"], blocks[other])
        return conclude(found, margin=margin_of(metric), rows=after.n, level=level)

    verdict.append(f"Against the base: {_outcome(compare('base', LEVEL), after.n)}.")
    if not math.isnan(constant.mean):
        # The most frequent class is that of the test rows: one of at least two that were tried.
        found = compare("majority", LEVEL / 2)
        verdict.append(f"Against the majority baseline: {_outcome(found, after.n)}.")
        if not (found.kind == "shown" and found.difference.interval.mean > 0):
            verdict.append(
                "To reach more, train longer, with a higher learning rate, or on more rows."
            )
    if "ece" in scores["tuned"]:
        error = {kind: _format(scores[kind]["ece"].mean) for kind in ("base", "tuned")}
        verdict.append(f"Calibration error (ECE): {error['base']} before, {error['tuned']} after.")
    return verdict


def _outcome(found: Conclusion, rows: int) -> str:
    return describe(found, rows=rows, test=TEST)


def _format(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
