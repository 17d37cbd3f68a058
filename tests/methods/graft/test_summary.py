"""Summaries of graft runs: means over seeds, one kind and one size at a time."""

import math

import numpy as np

from cutaway.methods.graft.summary import graft_outcome, mean_scores

ROWS = [
    {"kind": kind, "metric": "accuracy", "value": value, "low": 0.1, "high": 0.9, "sparsity": share}
    for kind, share, value in (
        ("base", 0.0, 0.5), ("learned", 0.1, 0.6), ("learned", 0.1, 0.8), ("learned", 0.2, 0.9),
    )
]  # fmt: skip


def test_the_mean_is_over_the_seeds_of_one_size() -> None:
    found = mean_scores(ROWS, "learned", 0.1)["accuracy"]
    assert found == {"value": np.mean([0.6, 0.8]), "low": 0.1, "high": 0.9, "n": 2}


def test_the_base_counts_at_every_size() -> None:
    assert mean_scores(ROWS, "base", 0.1) == mean_scores(ROWS, "base", 0.2) != {}


def test_rows_about_parts_of_a_model_are_left_out() -> None:
    parts = [{**ROWS[1], name: 1, "value": 0.0} for name in ("layer", "part", "bin", "step")]
    assert mean_scores([*ROWS, *parts], "learned", 0.1) == mean_scores(ROWS, "learned", 0.1)


def test_a_value_that_is_no_number_is_none_in_json() -> None:
    rows = [{**ROWS[1], "value": None, "low": math.nan, "high": None}]
    assert mean_scores(rows, "learned", 0.1)["accuracy"] == {
        "value": None, "low": None, "high": None, "n": 1,
    }  # fmt: skip


def test_baselines_are_the_base_and_the_masks_that_were_not_learned() -> None:
    scores = {kind: {"accuracy": 0.5} for kind in ("base", "tuned", "learned", "removed", "random")}
    row = {"base": "b", "task": "t", **ROWS[0]}
    outcome = graft_outcome("learn", [row], model={}, data={}, summary={"scores": scores})
    assert set(outcome.baselines) == {"base", "random"}
    assert outcome.summary["verb"] == "learn"
