"""The forgetting table against scores that are known."""

import math

from cutaway.methods.graft.forgetting import (
    STRATEGIES,
    base_scores,
    forgetting_by_task,
    mean_end,
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
    summary = summarise_forgetting(ROWS, ["one", "two"], METRICS, 100)
    assert summary["means"]["graft"] == {"end": (0.85 + 0.8) / 2, "forgotten": 0.9 - 0.85}
    assert summary["means"]["sequential"]["forgotten"] == 0.95 - 0.6
    assert summary["sizes"] == [7.0]
    assert len(summary["verdict"]) == 3


def test_the_mean_of_the_ends_is_surer_than_each() -> None:
    rows = [{**row, "low": row["value"] - 0.03, "high": row["value"] + 0.03} for row in ROWS]
    found = mean_end(rows, "graft", METRICS)
    assert found.mean == (0.85 + 0.8) / 2
    assert math.isclose(found.high - found.low, 0.06 / math.sqrt(2))
    # Without intervals nothing is known about its error.
    assert math.isnan(mean_end(ROWS, "graft", METRICS).low)


def test_the_bases_scores_leave_out_calibration() -> None:
    assert base_scores(ROWS) == {"base on one": 0.5, "base on two": 0.4}
