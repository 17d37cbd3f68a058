"""The sweep as one table: what each regulariser and strength gains and costs, which are best."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isnan, nan
from typing import Any

from cutaway.measure.intervals import Interval, clip_interval, over_seeds
from cutaway.recipe.table import Row

ParetoPoint = dict[str, Any]
SKILL_METRICS = ("exact_match", "log_rmse")
RETENTION_METRICS = ("forgetting", "lm_loss", "probe_forgetting", "finetune_forgetting")


def pareto_points(rows: Iterable[Row], skill: str) -> list[ParetoPoint]:
    """Exact match and forgetting of each regulariser and strength, mean over seeds.

    `<metric>_low` and `<metric>_high` are the ends of a 95 % interval: over seeds where there are
    several, else that of the measured rows; None where neither tells.
    """
    found: dict[tuple[str, float], dict[str, dict[int, list[Interval]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        if row["stage"] != "after" or row["value"] is None:
            continue
        key = (row["regulariser"], row["strength"])
        wanted = SKILL_METRICS if row["probe"] == f"{skill} test" else RETENTION_METRICS
        if row["metric"] in wanted:
            found[key][row["metric"]][row["seed"]].append(_row_interval(row))
    points = [
        {"regulariser": name, "strength": strength, **_seed_means(metrics)}
        for (name, strength), metrics in found.items()
    ]
    return mark_pareto_front(points)


def _row_interval(row: Row) -> Interval:
    low, high = (nan if row.get(end) is None else row[end] for end in ("low", "high"))
    return Interval(row["value"], low, high, 0.95, 1)


def _seed_means(metrics: dict[str, dict[int, list[Interval]]]) -> ParetoPoint:
    point: ParetoPoint = {}
    for metric, by_seed in metrics.items():
        found = over_seeds(list(by_seed.values()))
        found = clip_interval(found, 0.0, 1.0) if metric == "exact_match" else found
        point[metric] = found.mean
        for end, value in (("low", found.low), ("high", found.high)):
            point[f"{metric}_{end}"] = None if isnan(value) else value
        point["seeds"] = len(by_seed)
    return point


def mark_pareto_front(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points, each with whether no other is at least as good in both and better in one."""

    def beaten(one: ParetoPoint) -> bool:
        return any(
            other["exact_match"] >= one["exact_match"]
            and other["forgetting"] <= one["forgetting"]
            and (other["exact_match"], -other["forgetting"])
            != (one["exact_match"], -one["forgetting"])
            for other in points
        )

    return [{**point, "front": not beaten(point)} for point in points]


def inject_verdict(points: Sequence[ParetoPoint], before: float, skill: str) -> list[str]:
    """What the sweep says, in sentences."""
    said = []
    plain = next((p for p in points if p["regulariser"].startswith("none")), None)
    held = [p for p in points if p is not plain]
    if plain is not None:
        said.append(
            f"Plain training takes {skill} from {before:.0%} to {plain['exact_match']:.0%} exact "
            f"and the loss on retained texts up by {plain['forgetting']:+.2f} nats{_forgetting_note(plain)}."
        )
    good = held
    if plain is not None:
        near = [p for p in held if p["exact_match"] >= plain["exact_match"] - 0.05]
        good = near or held
    if good:
        best = min(good, key=lambda p: p["forgetting"])
        said.append(
            f"{best['regulariser']} at strength {best['strength']:g} reaches "
            f"{best['exact_match']:.0%} exact and costs {best['forgetting']:+.2f} nats"
            f"{_forgetting_note(best)}."
        )
    return said


def _forgetting_note(point: ParetoPoint) -> str:
    """What probes and fine-tunes lost, where there were some."""
    words = {"probe_forgetting": "probes", "finetune_forgetting": "fine-tunes"}
    found = [f"{word} lose {point[name]:+.3f}" for name, word in words.items() if name in point]
    return f" ({', '.join(found)})" if found else ""
