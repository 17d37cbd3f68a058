"""The findings of a grid: per model and set the best cell, its baselines, and the verdict."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from cutaway.core.textset import TextSet
from cutaway.methods.probe_verdicts import Evidence, Score, best, verdicts
from cutaway.run.probe_rows import MAIN

CELL = ["layers", "pool", "classifier"]


def summarise(
    table: pl.DataFrame, sets: Iterable[TextSet]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary and the baselines of a run, as plain values."""
    findings, baselines = [], {}
    for texts in sets:
        metric = MAIN[texts.task]
        of_set = table.filter(pl.col("data") == texts.name)
        for model in of_set["model"].unique(maintain_order=True):
            mine = of_set.filter(pl.col("model") == model)
            found = _finding(mine, model, texts, metric)
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
        "cells": table.select(["model", "data", "kind", *CELL]).unique().height,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _finding(mine: pl.DataFrame, model: str, texts: TextSet, metric: str) -> dict[str, Any]:
    """What one model shows on one set."""
    evidence = _evidence(mine, metric)
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
    top = best(evidence)
    where = {"layers": top.layers, "pool": top.pool, "classifier": top.classifier}
    row = mine.filter(
        (pl.col("kind") == "probe") & (pl.col("metric") == metric)
        & pl.all_horizontal(pl.col(k) == v for k, v in where.items())
    ).sort("n_train").row(-1, named=True)  # fmt: skip
    value = {"metric": metric, "value": top.mean, "low": row["low"], "high": row["high"]}
    return {
        **shared,
        "best": {"model": model, "data": texts.name, **where, **value},
        "verdict": [*verdicts(evidence), *told],
        "baselines": {name: score.mean for name, score in evidence.baselines.items()},
    }


def _evidence(mine: pl.DataFrame, metric: str) -> Evidence:
    """The scores of the largest training size, as the verdict wants them."""
    done = mine.filter((pl.col("metric") == metric) & (pl.col("status") == "done"))
    # Of a learning curve only the full size speaks: its smaller sizes are other questions.
    full = done.filter(pl.col("n_train") > 0.9 * pl.col("n_train").max().over(["kind", *CELL]))
    scores = {kind: _scores(full.filter(pl.col("kind") == kind))
              for kind in ("probe", "twin", "control", "baseline")}  # fmt: skip
    return Evidence(
        metric=metric,
        cells=scores["probe"],
        baselines={s.classifier: s for s in scores["baseline"]},
        twins=scores["twin"],
        controls=scores["control"],
        mdl=_code(mine, scores["probe"], metric),
    )


def _scores(rows: pl.DataFrame) -> tuple[Score, ...]:
    made = []
    for _, group in rows.sort("repeat", *CELL).group_by(CELL, maintain_order=True):
        values = tuple(float("nan") if v is None else v for v in group["value"])
        first = group.row(0, named=True)
        train, test = (round(float(np.mean(group[k].to_numpy()))) for k in ("n_train", "n_test"))
        where = {name: first[name] for name in CELL}
        made.append(Score(values, train, test, **where))
    return tuple(made)


def _code(mine: pl.DataFrame, cells: tuple[Score, ...], metric: str) -> tuple[float, float] | None:
    """Code length and uniform code of the best cell's layer and pooler."""
    if not cells:
        return None
    top = best(Evidence(metric, cells))
    here = mine.filter((pl.col("layers") == top.layers) & (pl.col("pool") == top.pool))
    found = {
        name: here.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("mdl_bits", "mdl_uniform_bits")
    }
    if not all(found.values()):
        return None
    return found["mdl_bits"][0], found["mdl_uniform_bits"][0]
