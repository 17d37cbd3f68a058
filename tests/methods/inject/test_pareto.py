"""The Pareto points of a sweep against a direct calculation."""

import numpy as np
import pytest

from cutaway.measure.intervals import Interval
from cutaway.methods.inject.pareto import (
    RETENTION_METRICS,
    SKILL_METRICS,
    interval_columns,
    mark_pareto_front,
    pareto_points,
    row_interval,
)


def row(metric: str, value: float | None, *, seed: int = 0, **more: object) -> dict[str, object]:
    probe = "arithmetic test" if metric in SKILL_METRICS else "docs"
    cell = {"regulariser": "ewc", "strength": 1.0, "seed": seed, "stage": "after", "probe": probe}
    return {**cell, "metric": metric, "value": value, **more}


def test_a_point_has_the_mean_of_every_metric_over_sets_and_seeds() -> None:
    rng = np.random.default_rng(0)
    values = {name: rng.random((3, 2)) for name in (*SKILL_METRICS, *RETENTION_METRICS)}
    rows = [
        row(name, float(v), seed=seed)
        for name, table in values.items()
        for seed, by_set in enumerate(table)
        for v in by_set
    ]
    (point,) = pareto_points(rows)
    assert point["seeds"] == 3
    for name, table in values.items():
        assert point[name] == pytest.approx(table.mean())
        assert point[f"{name}_low"] < point[name] < point[f"{name}_high"]


def test_only_rows_after_training_on_the_test_problems_count() -> None:
    counted = [row("exact_match", 0.5), row("forgetting", 0.2)]
    others = [
        row("exact_match", 0.9, stage="before"),
        row("exact_match", 0.9, probe="arithmetic digits 2"),
        row("exact_match", 0.9, probe="arithmetic beyond 3 digits"),
        row("forgetting", None),
        row("perplexity", 7.0),
    ]
    assert pareto_points(counted + others) == pareto_points(counted)


def test_a_retained_set_may_be_named_like_the_test_problems() -> None:
    (point,) = pareto_points([row("exact_match", 0.5), row("forgetting", 0.2, probe="my test")])
    assert point["forgetting"] == 0.2


def test_each_regulariser_and_strength_has_one_point_in_the_order_of_the_rows() -> None:
    cells = [("none", 0.0), ("ewc", 1.0), ("ewc", 0.1), ("ewc+lora4", 1.0)]
    rows = [
        row(metric, 0.5, regulariser=name, strength=strength, seed=seed)
        for seed in (0, 1)
        for name, strength in cells
        for metric in ("exact_match", "forgetting")
    ]
    assert [(p["regulariser"], p["strength"]) for p in pareto_points(rows)] == cells


def test_exact_match_stays_within_0_and_1_and_forgetting_does_not() -> None:
    rows = [row("exact_match", v, seed=s) for s, v in enumerate((0.0, 1.0))]
    rows += [row("forgetting", v, seed=s) for s, v in enumerate((-1.0, 1.0))]
    (point,) = pareto_points(rows)
    assert (point["exact_match_low"], point["exact_match_high"]) == (0.0, 1.0)
    assert point["forgetting_low"] < -1.0


def test_a_row_without_an_interval_has_unknown_ends() -> None:
    assert np.isnan(row_interval({"value": 1.0}).low)
    assert row_interval({"value": 1.0, "low": 0.5, "high": 2.0}).high == 2.0
    columns = interval_columns("loss", Interval(1.0, float("nan"), 2.0, 0.95, 3))
    assert columns == {"loss": 1.0, "loss_low": None, "loss_high": 2.0}


def test_the_front_is_what_no_other_point_dominates() -> None:
    rng = np.random.default_rng(1)
    points = [
        {"exact_match": float(e), "forgetting": float(f)}
        for e, f in rng.integers(0, 6, size=(40, 2)) / 5
    ]
    marked = mark_pareto_front(points)
    for one in marked:
        better = [
            o
            for o in points
            if o["exact_match"] >= one["exact_match"]
            and o["forgetting"] <= one["forgetting"]
            and (o["exact_match"] > one["exact_match"] or o["forgetting"] < one["forgetting"])
        ]
        assert one["front"] == (not better)
    assert any(p["front"] for p in marked) and not all(p["front"] for p in marked)
