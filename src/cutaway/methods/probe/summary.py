"""The findings of a grid: per model and set the best cell, its baselines, and the verdict."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from cutaway.core.textset import TextSet
from cutaway.measure.shared_test_variance import ResamplingInfo
from cutaway.methods.probe.piece_store import CellKey, cell_key
from cutaway.methods.probe.rows import MAIN_METRIC
from cutaway.methods.probe.verdict import Evidence, ProbeScore, best_score, verdict_sentences

CELL_COLUMNS = ["layers", "pool", "classifier"]


def summarise(
    table: pl.DataFrame,
    sets: Iterable[TextSet],
    bases: Mapping[CellKey, ResamplingInfo] | None = None,
    *,
    curve: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary and the baselines of a run, as plain values.

    `bases` says what cells stand on where their rows don't, `curve` that there are several sizes.
    """
    findings, baselines = [], {}
    for texts in sets:
        metric = MAIN_METRIC[texts.task]
        of_set = table.filter(pl.col("data") == texts.name)
        for model in of_set["model"].unique(maintain_order=True):
            mine = of_set.filter(pl.col("model") == model)
            if curve:
                # Only the largest size asked for speaks: smaller ones are other questions.
                most = pl.col("n_train").filter(pl.col("metric") == metric).max()
                mine = mine.filter(
                    (pl.col("metric") != metric)
                    | (pl.col("n_train") == most)
                    | (pl.col("status") == "failed")
                )
            found = _finding(mine, model, texts, _evidence(mine, metric, bases or {}))
            findings.append(found)
            baselines[f"{model} on {texts.name}"] = found.pop("baselines")
    several = len(findings) > 1
    said = [
        (f"{f['model']} on {f['data']}: {line}" if several else line)
        for f in findings
        for line in f["verdict"]
    ]
    top = [f["best"] for f in findings if f["best"]]
    summary = {
        "metric": findings[0]["metric"],
        "best": top[0] if top else None,
        "verdict": said,
        "findings": findings,
        "cells": table.select(["model", "data", "kind", *CELL_COLUMNS]).unique().height,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _finding(mine: pl.DataFrame, model: str, texts: TextSet, evidence: Evidence) -> dict[str, Any]:
    """What one model shows on one set."""
    metric = evidence.metric
    failed = mine.filter(pl.col("status") == "failed")
    told = (
        [f"{failed.height} cells failed; the first: {failed['reason'][0]}"] if failed.height else []
    )
    shared = {"model": model, "data": texts.name, "task": texts.task, "metric": metric}
    if not evidence.cells:
        return {
            **shared,
            "best": None,
            "verdict": ["No cell could be measured.", *told],
            "baselines": {},
        }
    top = best_score(evidence)
    where = {"layers": top.layers, "pool": top.pool, "classifier": top.classifier}
    row = mine.filter(
        (pl.col("kind") == "probe") & (pl.col("metric") == metric)
        & pl.all_horizontal(pl.col(k) == v for k, v in where.items())
    ).sort("n_train").row(-1, named=True)  # fmt: skip
    value = {"metric": metric, "value": top.mean, "low": row["low"], "high": row["high"]}
    return {
        **shared,
        "best": {"model": model, "data": texts.name, **where, **value},
        "verdict": [*verdict_sentences(evidence), *told],
        "baselines": {name: score.mean for name, score in evidence.baselines.items()},
    }


def _evidence(mine: pl.DataFrame, metric: str, bases: Mapping[CellKey, ResamplingInfo]) -> Evidence:
    """The scores as the verdict wants them."""
    done = mine.filter((pl.col("metric") == metric) & (pl.col("status") == "done"))
    scores = {kind: _probe_scores(done.filter(pl.col("kind") == kind), bases)
              for kind in ("probe", "twin", "control", "baseline")}  # fmt: skip
    return Evidence(
        metric=metric,
        cells=scores["probe"],
        baselines={s.classifier: s for s in scores["baseline"]},
        twins=scores["twin"],
        controls=scores["control"],
        mdl=_mdl_of_best(mine, scores["probe"], metric),
    )


def _probe_scores(
    rows: pl.DataFrame, bases: Mapping[CellKey, ResamplingInfo]
) -> tuple[ProbeScore, ...]:
    made = []
    for _, group in rows.sort("repeat", *CELL_COLUMNS).group_by(CELL_COLUMNS, maintain_order=True):
        values = tuple(float("nan") if v is None else v for v in group["value"])
        first = group.row(0, named=True)
        train, test = (float(np.mean(group[k].to_numpy())) for k in ("n_train", "n_test"))
        where = {name: first[name] for name in CELL_COLUMNS}
        basis = bases.get(cell_key(first), ResamplingInfo(train, test))
        made.append(ProbeScore(values, basis, **where))
    return tuple(made)


def _mdl_of_best(
    mine: pl.DataFrame, cells: tuple[ProbeScore, ...], metric: str
) -> tuple[float, float] | None:
    """Code length and uniform code of the best cell's layer and pooler."""
    if not cells:
        return None
    top = best_score(Evidence(metric, cells))
    here = mine.filter((pl.col("layers") == top.layers) & (pl.col("pool") == top.pool))
    found = {
        name: here.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("mdl_bits", "mdl_uniform_bits")
    }
    if not all(found.values()):
        return None
    return found["mdl_bits"][0], found["mdl_uniform_bits"][0]
