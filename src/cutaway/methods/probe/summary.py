"""The summary of a probe run: per model and data set the best cell, its baselines, the verdict."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from cutaway.core.textset import TextSet
from cutaway.measure.repeats import ResamplingInfo
from cutaway.methods.probe.rows import CELL_COLUMNS, MAIN_METRIC, CellKey, cell_key
from cutaway.methods.probe.verdict import Evidence, ProbeScore, best_score, verdict_sentences

CHOICES = ["layers", "pool", "classifier"]


def summarise(
    table: pl.DataFrame,
    sets: Iterable[TextSet],
    resampling: Mapping[CellKey, ResamplingInfo] | None = None,
    *,
    curve: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary and the baselines of a run, as JSON-ready values.

    `resampling` tells how the repeats of a cell were drawn, where its rows don't; `curve` that the
    run has several training sizes.
    """
    findings, baselines = [], {}
    for texts in sets:
        of_set = table.filter(pl.col("data") == texts.name)
        for model in of_set["model"].unique(maintain_order=True):
            rows = of_set.filter(pl.col("model") == model)
            rows = _largest_size(rows, MAIN_METRIC[texts.task]) if curve else rows
            found = _finding(rows, model, texts, resampling or {})
            baselines[f"{model} on {texts.name}"] = found.pop("baselines")
            findings.append(found)
    several = len(findings) > 1
    verdict = [
        (f"{f['model']} on {f['data']}: {line}" if several else line)
        for f in findings
        for line in f["verdict"]
    ]
    summary = {
        "metric": findings[0]["metric"],
        "best": next((f["best"] for f in findings if f["best"]), None),
        "verdict": verdict,
        "findings": findings,
        "cells": table.select(CELL_COLUMNS).unique().height,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _largest_size(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The rows of a learning curve at its largest training size."""
    largest = pl.col("n_train").filter(pl.col("metric") == metric).max()
    at_largest = (pl.col("n_train") == largest) | (pl.col("status") == "failed")
    return rows.filter((pl.col("metric") != metric) | at_largest)


def _finding(
    rows: pl.DataFrame,
    model: str,
    texts: TextSet,
    resampling: Mapping[CellKey, ResamplingInfo],
) -> dict[str, Any]:
    """The best cell, the verdict and the baselines of one model on one data set."""
    evidence = _evidence(rows, MAIN_METRIC[texts.task], resampling)
    metric, failed = evidence.metric, rows.filter(pl.col("status") == "failed")
    failures = []
    if failed.height:
        failures = [f"{failed.height} cells failed; the first: {failed['reason'][0]}"]
    shared = {"model": model, "data": texts.name, "task": texts.task, "metric": metric}
    if not evidence.cells:
        verdict = ["No cell could be measured.", *failures]
        return {**shared, "best": None, "verdict": verdict, "baselines": {}}
    top = best_score(evidence)
    where = {name: getattr(top, name) for name in CHOICES}
    row = rows.filter(
        (pl.col("kind") == "probe") & (pl.col("metric") == metric)
        & pl.all_horizontal(pl.col(k) == v for k, v in where.items())
    ).sort("n_train").row(-1, named=True)  # fmt: skip
    value = {"metric": metric, "value": top.mean, "low": row["low"], "high": row["high"]}
    return {
        **shared,
        "best": {"model": model, "data": texts.name, **where, **value},
        "verdict": [*verdict_sentences(evidence), *failures],
        "baselines": {name: score.mean for name, score in evidence.baselines.items()},
    }


def _evidence(
    rows: pl.DataFrame, metric: str, resampling: Mapping[CellKey, ResamplingInfo]
) -> Evidence:
    done = rows.filter((pl.col("metric") == metric) & (pl.col("status") == "done"))
    scores = {
        kind: _probe_scores(done.filter(pl.col("kind") == kind), resampling)
        for kind in ("probe", "twin", "control", "baseline")
    }
    return Evidence(
        metric=metric,
        cells=scores["probe"],
        baselines={s.classifier: s for s in scores["baseline"]},
        twins=scores["twin"],
        controls=scores["control"],
        mdl=_mdl_of_best(rows, Evidence(metric, scores["probe"])),
    )


def _probe_scores(
    rows: pl.DataFrame, resampling: Mapping[CellKey, ResamplingInfo]
) -> tuple[ProbeScore, ...]:
    scores = []
    for _, group in rows.sort("repeat", *CHOICES).group_by(CHOICES, maintain_order=True):
        values = tuple(float("nan") if v is None else v for v in group["value"])
        first = group.row(0, named=True)
        train, test = (float(np.mean(group[k].to_numpy())) for k in ("n_train", "n_test"))
        info = resampling.get(cell_key(first), ResamplingInfo(train, test))
        scores.append(ProbeScore(values, info, **{name: first[name] for name in CHOICES}))
    return tuple(scores)


def _mdl_of_best(rows: pl.DataFrame, evidence: Evidence) -> tuple[float, float] | None:
    """Code length and uniform code length at the best cell's layers and pooler, in bits."""
    if not evidence.cells:
        return None
    top = best_score(evidence)
    here = rows.filter((pl.col("layers") == top.layers) & (pl.col("pool") == top.pool))
    bits, uniform = (
        here.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("mdl_bits", "mdl_uniform_bits")
    )
    return (bits[0], uniform[0]) if bits and uniform else None
