"""The forgetting table against scores that are known."""

import math

from cutaway.methods.graft.forgetting import (
    STRATEGIES,
    base_scores,
    end_difference,
    forgetting_by_task,
    score_at,
    summarise_forgetting,
)

SCORES = {
    ("base", 0): (0.5, 0.4),
    ("graft", 1): (0.9, 0.4),
    ("graft", 2): (0.85, 0.8),
    ("sequential", 1): (0.95, 0.5),
    ("sequential", 2): (0.6, 0.9),
}
ROWS = [
    {"kind": kind, "step": step, "task": task, "metric": metric, "value": value}
    for (kind, step), values in SCORES.items()
    for task, value in zip(("one", "two"), values, strict=True)
    for metric in ("accuracy", "ece")
] + [{"kind": "graft", "step": 1, "task": "one", "metric": "size", "value": 7.0}]
METRICS = {"one": "accuracy", "two": "accuracy"}


def test_a_score_that_was_not_measured_is_nan() -> None:
    assert score_at(ROWS, "graft", "one", 1, "accuracy") == 0.9
    assert math.isnan(score_at(ROWS, "graft", "one", 3, "accuracy"))
    assert math.isnan(score_at([{**ROWS[0], "value": None}], "base", "one", 0, "accuracy"))


def test_forgetting_is_the_loss_since_a_task_was_learned() -> None:
    table = {
        (line["way"], line["task"]): line for line in forgetting_by_task(ROWS, METRICS, METRICS)
    }
    assert len(table) == len(STRATEGIES) * 2
    for (way, task), line in table.items():
        place = ("one", "two").index(task)
        learned, end = SCORES[way, place + 1][place], SCORES[way, 2][place]
        assert (line["learned"], line["end"], line["forgotten"]) == (learned, end, learned - end)
        assert line["before"] == SCORES["base", 0][place]


def test_means_leave_out_the_last_task_which_nothing_followed() -> None:
    summary = summarise_forgetting(ROWS, METRICS, dict.fromkeys(METRICS, 100.0), 100)
    assert summary["means"]["graft"] == {"end": (0.85 + 0.8) / 2, "forgotten": 0.9 - 0.85}
    assert summary["means"]["sequential"]["forgotten"] == 0.95 - 0.6
    assert summary["sizes"] == [7.0]
    assert len(summary["verdict"]) == 3


def test_the_ends_are_compared_by_blocks_of_test_rows_over_all_tasks() -> None:
    signs = {"graft": [1, -1] * 10, "sequential": [1] * 10 + [-1] * 10}
    blocks = [
        {**row, "metric": "pseudo_accuracy", "bin": i, "value": row["value"] + 0.05 * sign}
        for row in ROWS
        if row["metric"] == "accuracy" and row["kind"] in signs
        for i, sign in enumerate(signs[row["kind"]])
    ]
    found = end_difference([*ROWS, *blocks], METRICS, dict.fromkeys(METRICS, 100.0))
    assert math.isclose(found.interval.mean, (0.85 + 0.8) / 2 - (0.6 + 0.9) / 2)
    assert found.interval.low > 0.03 and found.p < 0.001
    # A run that an earlier version began has no blocks.
    assert math.isnan(end_difference(ROWS, METRICS, dict.fromkeys(METRICS, 100.0)).p)


def test_the_bases_scores_leave_out_calibration() -> None:
    assert base_scores(ROWS) == {"base on one": 0.5, "base on two": 0.4}
