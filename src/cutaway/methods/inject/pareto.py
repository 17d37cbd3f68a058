"""The Pareto points of a sweep: exact match and forgetting of each regulariser and strength."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Any

from cutaway.measure.intervals import Interval, clip_interval, over_seeds

ParetoPoint = dict[str, Any]
SKILL_METRICS = ("exact_match", "log_rmse")
RETENTION_METRICS = ("forgetting", "lm_loss", "probe_forgetting", "finetune_forgetting")


def pareto_points(rows: Iterable[Mapping[str, Any]]) -> list[ParetoPoint]:
    """Each regulariser and strength with its metrics, averaged over seeds.

    Only those with both exact match and forgetting are points.
    `<metric>_low` and `<metric>_high` bound a 95 % interval: over seeds where there are several,
    otherwise that of the measured rows; None where neither is known.
    """
    groups: dict[tuple[str, float], dict[str, dict[int, list[Interval]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        if row["stage"] != "after" or row["value"] is None:
            continue
        # Exact match is also measured on longer problems and on groups of questions.
        skill = row["metric"] in SKILL_METRICS and row["probe"].endswith(" test")
        if skill or row["metric"] in RETENTION_METRICS:
            group = groups[row["regulariser"], row["strength"]]
            group[row["metric"]][row["seed"]].append(row_interval(row))
    points = [
        {"regulariser": name, "strength": strength, **_seed_means(metrics)}
        for (name, strength), metrics in groups.items()
        if {"exact_match", "forgetting"} <= set(metrics)
    ]
    return mark_pareto_front(points)


def row_interval(row: Mapping[str, Any]) -> Interval:
    """A row's value with its interval; NaN where it has none."""
    low, high = (nan if row.get(end) is None else row[end] for end in ("low", "high"))
    return Interval(row["value"], low, high, 0.95, 1)


def interval_columns(name: str, value: Interval) -> dict[str, float | None]:
    """`<name>`, `<name>_low` and `<name>_high`; None where an end is not known."""
    ends = {f"{name}_low": value.low, f"{name}_high": value.high}
    return {name: value.mean} | {k: None if isnan(end) else end for k, end in ends.items()}


def _seed_means(metrics: Mapping[str, Mapping[int, list[Interval]]]) -> ParetoPoint:
    point: ParetoPoint = {}
    for metric, by_seed in metrics.items():
        mean = over_seeds(list(by_seed.values()))
        mean = clip_interval(mean, 0.0, 1.0) if metric == "exact_match" else mean
        point |= {**interval_columns(metric, mean), "seeds": len(by_seed)}
    return point


def mark_pareto_front(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points, each with `front`: whether no other is as good in both metrics and better in one.

    Higher exact match and lower forgetting are better.
    """

    def dominated(one: ParetoPoint) -> bool:
        return any(
            other["exact_match"] >= one["exact_match"]
            and other["forgetting"] <= one["forgetting"]
            and (other["exact_match"], -other["forgetting"])
            != (one["exact_match"], -one["forgetting"])
            for other in points
        )

    return [{**point, "front": not dominated(point)} for point in points]
