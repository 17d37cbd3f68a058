"""Summaries of graft runs, and the metadata of a skill file."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cutaway import __version__
from cutaway.core.textset import TextSet
from cutaway.measure.jackknife import perfect_rows
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.rows import GRAFT_SCHEMA, read_block_scores
from cutaway.methods.graft.skill import Skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.verdict import MAIN_KINDS, learning_verdict
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.life_cycle import Outcome
from cutaway.recipe.result import Row, table
from cutaway.training.task_split import TaskSplit

DETAIL_COLUMNS = ("layer", "part", "bin", "step")


def graft_outcome(
    verb: str,
    rows: Iterable[Row],
    *,
    model: LM | Mapping[str, Any],
    data: TextSet | Mapping[str, Any],
    summary: Mapping[str, Any],
    files: Mapping[str, Path | bytes] | None = None,
    splits: pl.DataFrame | None = None,
) -> Outcome:
    """What a graft recipe measured, with the scores of its baselines."""
    scores = summary.get("scores", {})
    others = {kind: score for kind, score in scores.items() if kind not in MAIN_KINDS}
    if isinstance(data, TextSet):
        data = {"name": data.name, "rows": len(data), "digest": data.digest}
    return Outcome(
        rows=table(rows, GRAFT_SCHEMA),
        summary={"verb": verb, **summary},
        baselines={"base": scores.get("base"), **others},
        model=model_facts(model) if isinstance(model, LM) else dict(model),
        data=dict(data),
        files=files or {},
        splits=splits,
    )


def skill_metadata(
    spec: LearnSpec, pair: ModelPair, split: TaskSplit, skill: Skill, rows: list[Row], *,
    share: float, seeds: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    """The metadata of a skill file; its metrics come from the rows of masks with this share."""
    examples, options = pair.model.examples, ("optimizer", "lr", "steps", "step_examples", "start")
    return {
        **pair.facts,
        "task": {
            "name": split.task.name,
            "mode": pair.model.mode,
            "at": pair.model.at,
            "template": examples.format.template,
            "words": list(examples.format.words),
            "edits": examples.format.edits,
            "classes": list(split.texts.classes),
            "metric": examples.metric,
            **({"bounds": list(examples.bounds)} if examples.task == "regression" else {}),
            "data": split.training_data,
        },
        "size": skill.size,
        "trained": pair.total,
        "trained_layers": pair.trained_layers,
        **({"precision": pair.compared} if pair.compared else {}),
        "sparsity": skill.size / pair.total,
        "learned": {
            **{name: getattr(spec, name) for name in options},
            "seeds": list(seeds),
            "keep_gain": spec.keep_gain,
        },
        "metrics": {kind: mean_scores(rows, kind, share) for kind in MAIN_KINDS},
        "cutaway": __version__,
    }


def mean_scores(rows: Sequence[Row], kind: str, share: float) -> dict[str, Any]:
    """Mean over seeds of each metric of one kind of mask at this size, with its interval."""
    cells: dict[str, list[Row]] = {}
    for row in rows:
        whole = all(row.get(column) is None for column in DETAIL_COLUMNS)
        if row["kind"] == kind and _has_size(row, share) and whole:
            cells.setdefault(row["metric"], []).append(row)
    return {
        metric: {
            "value": _nan_to_none(float(np.mean([_none_to_nan(row["value"]) for row in many]))),
            **{end: _nan_to_none(many[0].get(end)) for end in ("low", "high")},
            "n": len(many),
        }
        for metric, many in cells.items()
    }


def _has_size(row: Row, share: float) -> bool:
    return row["kind"] in ("base", "tuned") or row.get("sparsity") == share


def summarise_learning(
    pair: ModelPair,
    split: TaskSplit,
    sizes: list[int],
    rows: list[Row],
    *,
    seeds: Sequence[int],
    out: str,
) -> dict[str, Any]:
    """Scores of every kind at the first size, the metric by size, and the verdict."""
    total, metric = pair.total, pair.model.examples.metric
    test_labels = pair.model.examples.labels[split.test]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    by_size = {n: {kind: mean_scores(rows, kind, n / total) for kind in kinds} for n in sizes}
    scores, worth = by_size[sizes[0]], perfect_rows(metric, test_labels)
    blocks = {
        kind: read_block_scores(
            [row for row in rows if row["kind"] == kind and _has_size(row, sizes[0] / total)],
            metric,
            worth,
        )
        for kind in kinds
    }
    best = {k: v for k, v in scores["learned"].get(metric, {}).items() if k != "n"}
    return {
        "metric": metric,
        "best": {"model": pair.lm.name, "data": split.texts.name, "metric": metric, **best},
        "task": split.task.name,
        "trained_weights": total,
        "trained_layers": pair.trained_layers,
        "precision": pair.compared,
        "sizes": sizes,
        "sparsity": [size / total for size in sizes],
        "seeds": list(seeds),
        "out": out,
        "cut_texts": pair.model.examples.truncated,
        "scores": scores,
        "curve": {
            str(size): {k: found.get(metric, {}).get("value") for k, found in one.items() if found}
            for size, one in by_size.items()
        },
        "verdict": learning_verdict(
            scores,
            blocks,
            metric,
            split.task.name,
            size=sizes[0],
            total=total,
            rows=len(split.test),
            compared=pair.compared,
        ),
    }


def _none_to_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _nan_to_none(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
