"""The last step of a graft recipe: summary, skill description, the run on disk."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cutaway import __version__
from cutaway.core.textset import TextSet
from cutaway.methods.graft.rows import graft_frame
from cutaway.methods.graft.skill import Skill
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.life_cycle import Outcome
from cutaway.recipe.provenance import CostMeter, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.store.results import save_record

if TYPE_CHECKING:
    from cutaway.methods.graft.learn import LearnContext
    from cutaway.methods.graft.model_pair import ModelPair
    from cutaway.methods.graft.spec import LearnSpec
    from cutaway.recipe.options import RunOptions
    from cutaway.training.task_split import TaskSplit

MAIN_KINDS = ("base", "tuned", "learned", "removed")
NAN = float("nan")


def graft_outcome(
    verb: str,
    rows: Iterable[Row],
    *,
    model: LM | Mapping[str, Any],
    data: TextSet | Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, Path | bytes] | None = None,
) -> Outcome:
    """What a graft recipe measured, with the scores of its baselines."""
    scores = summary.get("scores", {})
    others = {kind: score for kind, score in scores.items() if kind not in MAIN_KINDS}
    return Outcome(
        rows=graft_frame(rows),
        summary={"verb": verb, **summary},
        baselines={"base": scores.get("base"), **others},
        model=model_facts(model) if isinstance(model, LM) else dict(model),
        data=_dataset_facts(data) if isinstance(data, TextSet) else dict(data),
        files=files or {},
    )


def save_graft_run(
    verb: str,
    spec: "RunOptions",
    name: str,
    meter: CostMeter,
    rows: Iterable[Row],
    *,
    model: LM | Mapping[str, Any],
    data: TextSet | Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, Path | bytes] | None = None,
) -> Result:
    """The run, saved whole."""
    table = graft_frame(rows)
    others = {
        kind: score for kind, score in summary.get("scores", {}).items() if kind not in MAIN_KINDS
    }
    record = save_record(
        spec.runs,
        method="graft",
        address=name,
        spec=spec,
        summary={"verb": verb, **summary},
        baselines={"base": summary.get("scores", {}).get("base"), **others},
        model=model_facts(model) if isinstance(model, LM) else dict(model),
        data=_dataset_facts(data) if isinstance(data, TextSet) else dict(data),
        **provenance(f"graft {verb}", spec, meter),
        rows=table,
        files=files,
    )
    return Result(record)


def _dataset_facts(data: TextSet) -> dict[str, Any]:
    return {"name": data.name, "rows": len(data), "digest": data.digest}


def skill_metadata(
    spec: "LearnSpec", pair: "ModelPair", lesson: "TaskSplit", skill: Skill, rows: list[Row], *,
    share: float, seeds: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    """What a skill file says about itself; its metrics are the rows of masks with this share."""
    asked = pair.pupil.examples
    return {
        **pair.facts,
        "task": {
            "name": lesson.task.name,
            "mode": pair.pupil.mode,
            "at": pair.pupil.at,
            "template": asked.format.template,
            "words": list(asked.format.words),
            "edits": asked.format.edits,
            "classes": list(lesson.texts.classes),
            "metric": asked.metric,
            "data": lesson.training_data,
        },
        "size": skill.size,
        "trained": pair.total,
        "sparsity": skill.size / pair.total,
        "learned": {
            n: getattr(spec, n) for n in ("optimizer", "lr", "steps", "step_examples", "start")
        }
        | {"seeds": list(seeds), "keep_gain": spec.keep_gain},
        "metrics": {kind: mean_scores(rows, kind, share) for kind in MAIN_KINDS},
        "cutaway": __version__,
    }


def mean_scores(rows: list[Row], kind: str, share: float | None = None) -> dict[str, Any]:
    """Mean over seeds of every plain metric of a kind, with its interval."""
    found: dict[str, dict[str, Any]] = {}
    for metric in dict.fromkeys(row["metric"] for row in rows if row["kind"] == kind):
        cells = [
            row
            for row in rows
            if row["kind"] == kind
            and row["metric"] == metric
            and all(row.get(name) is None for name in ("layer", "part", "bin", "step"))
            and (share is None or kind in ("base", "tuned") or row.get("sparsity") == share)
        ]
        if cells:
            mean = float(np.mean([_none_to_nan(cell["value"]) for cell in cells]))
            ends = {end: _nan_to_none(cells[0].get(end)) for end in ("low", "high")}
            found[metric] = {"value": _nan_to_none(mean), **ends, "n": len(cells)}
    return found


def summarise_learning(
    work: "LearnContext", sizes: list[int], rows: list[Row], out: str
) -> dict[str, Any]:
    """The findings: scores of every kind at the first size, the curve, and sentences."""
    total, metric = work.pair.total, work.pair.pupil.examples.metric
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    table = {kind: mean_scores(rows, kind, sizes[0] / total) for kind in kinds}
    curve = {
        str(size): {
            kind: found.get(metric, {}).get("value")
            for kind in kinds
            if (found := mean_scores(rows, kind, size / total))
        }
        for size in sizes
    }
    return {
        "metric": metric,
        "best": {
            "model": work.where.base,
            "data": work.lesson.texts.name,
            "metric": metric,
            **{k: v for k, v in table["learned"].get(metric, {}).items() if k != "n"},
        },
        "task": work.lesson.task.name,
        "trained_weights": total,
        "sizes": sizes,
        "sparsity": [size / total for size in sizes],
        "seeds": list(work.seeds),
        "out": out,
        "cut_texts": work.pair.pupil.examples.truncated,
        "scores": table,
        "curve": curve,
        "verdict": learning_verdict(work, sizes[0], metric, table),
    }


def learning_verdict(
    work: "LearnContext", size: int, metric: str, table: Mapping[str, Any]
) -> list[str]:
    """What follows from the numbers, in sentences."""
    at = {kind: _none_to_nan(found.get(metric, {}).get("value")) for kind, found in table.items()}
    gain = _none_to_nan(table["learned"].get("relative_gain", {}).get("value"))
    share = f"{size:,} of {work.pair.total:,} trained weights ({size / work.pair.total:.1e})"
    said = [
        f"{share} bring {metric} on {work.lesson.task.name} from {at['base']:.3f} to "
        f"{at['learned']:.3f}; all of them bring it to {at['tuned']:.3f}."
    ]
    if np.isnan(gain):
        said.append("Fine-tuning brought no gain on these test rows, so no share of it is kept.")
    else:
        said.append(f"That is {gain:.0%} of the gain.")
    others = {k: v for k, v in at.items() if k not in MAIN_KINDS and not np.isnan(v)}
    if others:
        best = max(others, key=lambda kind: others[kind])
        word = "above" if at["learned"] > others[best] else "not above"
        said.append(
            f"As many weights chosen otherwise reach at best {others[best]:.3f} ({best}): the "
            f"learned mask is {word} it."
        )
    if "removed" in at:
        said.append(f"The tuned model without these weights has {at['removed']:.3f}.")
    return said


def _none_to_nan(value: float | None) -> float:
    return NAN if value is None else float(value)


def _nan_to_none(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
