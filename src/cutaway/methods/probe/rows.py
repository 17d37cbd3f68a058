"""Results of probe cells: tidy rows, figure details, how repeats were drawn, and the summary."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from cutaway.core.names import short_names
from cutaway.core.textset import TextSet
from cutaway.measure.repeats import (
    RepeatMetrics,
    ResamplingInfo,
    group_by_size,
    metric_interval,
    resampling_info,
)
from cutaway.measure.selection import finite_or_none
from cutaway.methods.probe.details import AnyDetail, validate_details
from cutaway.methods.probe.evidence import (
    Evidence,
    ProbeScore,
    best_on_test_facts,
    chance_level,
    headline_facts,
    warn_accuracy,
)
from cutaway.methods.probe.spec import TIE_METRIC, VALIDATION_SUFFIX
from cutaway.recipe.result import Row, table
from cutaway.store.progress import Progress
from cutaway.store.samples import SamplePieces

CELL_COLUMNS = ("model", "data", "kind", "layers", "pool", "classifier")
CHOICES = ["layers", "pool", "classifier"]
COORDINATES = (*CELL_COLUMNS, "repeat", "n_train", "n_val", "n_test")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(CELL_COLUMNS, pl.String),
    **dict.fromkeys(("repeat", "n_train", "n_val", "n_test"), pl.Int64),
    "metric": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
WORDS_SEEN = "control_words_seen"
"""The share of a control task's test rows whose word occurs in training."""
CellKey = tuple[Any, ...]
"""Model, data, kind, layers, pool, classifier and number of training rows."""


@dataclass(frozen=True)
class ProbeCell:
    """One point of the grid."""

    model: str
    data: str
    layers: str
    pool: str
    classifier: str
    kind: str = "probe"

    @property
    def key(self) -> str:
        """The cell in one line."""
        return "|".join((self.kind, self.layers, self.pool, self.classifier))


@dataclass(frozen=True)
class PieceResult:
    """What one piece of the grid gives."""

    rows: list[Row]
    details: list[AnyDetail] = field(default_factory=list)
    """For figures."""
    resampling: dict[CellKey, ResamplingInfo] = field(default_factory=dict)
    """How the repeats of a cell were drawn, where the rows alone don't tell."""
    samples: pl.DataFrame | None = None
    """The predictions on the test rows, if they were asked for."""

    def save(self, progress: Progress, key: str, samples: SamplePieces | None = None) -> None:
        """Keep the piece among the finished ones of its run."""
        if samples is not None and self.samples is not None:
            samples.put(key, self.samples)
        details: list[dict[str, Any]] = [
            {"figure": d.model_dump(mode="json")} for d in self.details
        ]
        for cell, info in self.resampling.items():
            details.append({"cell": list(cell), "resampling": _without_nan(asdict(info))})
        progress.put(key, self.rows, details)


def load_results(progress: Progress, keys: Sequence[str]) -> PieceResult:
    """The results of these finished pieces, in this order."""
    stored = progress.details(keys)
    details = validate_details([entry["figure"] for entry in stored if "figure" in entry])
    resampling = {}
    for entry in stored:
        if "resampling" in entry:
            info = entry["resampling"]
            blocks = tuple(_with_nan(each) for each in info["blocks"])
            resampling[tuple(entry["cell"])] = ResamplingInfo(**{**info, "blocks": blocks})
    return PieceResult(progress.rows(keys), details, resampling)


def _without_nan(value: Any) -> Any:
    """A value for JSON, which has no NaN."""
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _with_nan(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in values)


def cell_result(
    cell: ProbeCell, repeats: Sequence[RepeatMetrics], details: list[AnyDetail], metric: str
) -> PieceResult:
    """The result of a measured cell; `metric` is the main one."""
    resampling = {
        cell_key(row_coordinates(cell, group[0])): resampling_info(group, metric)
        for group in group_by_size(repeats)
        if metric in group[0].metrics
    }
    return PieceResult(cell_rows(cell, repeats), details, resampling)


def cell_rows(cell: ProbeCell, repeats: Sequence[RepeatMetrics]) -> list[Row]:
    """One row per repeat and metric; low and high are those of the mean over repeats."""
    rows = []
    for group in group_by_size(repeats):
        for metric in group[0].metrics:
            bounds: dict[str, float | None] = {"low": None, "high": None}
            if not metric.endswith(VALIDATION_SUFFIX) and metric != WORDS_SEEN:
                interval = metric_interval([r.metrics[metric] for r in group], group, metric)
                low, high = finite_or_none(interval.low), finite_or_none(interval.high)
                bounds = {"low": low, "high": high}
            for one in group:
                value = {"metric": metric, "value": finite_or_none(one.metrics[metric])}
                status = {"status": "done", "reason": ""}
                rows.append({**row_coordinates(cell, one), **value, **bounds, **status})
    return rows


def failed_row(cell: ProbeCell, reason: str, metric: str) -> Row:
    """The row of a cell that could not be measured: no value, but the reason."""
    empty = {"metric": metric, "value": None, "low": None, "high": None}
    where = row_coordinates(cell, RepeatMetrics(repeat=0, n_train=0, n_val=0, n_test=0))
    return {**where, **empty, "status": "failed", "reason": reason}


def probe_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows as a data frame with the promised columns, in a fixed order."""
    return table(rows, SCHEMA).sort([*COORDINATES, "metric"], maintain_order=True)


def row_coordinates(cell: ProbeCell, one: RepeatMetrics) -> Row:
    """The columns that identify a row."""
    sizes = {"repeat": one.repeat, "n_train": one.n_train, "n_val": one.n_val, "n_test": one.n_test}
    return {**{name: getattr(cell, name) for name in CELL_COLUMNS}, **sizes}


def cell_key(row: Mapping[str, Any]) -> CellKey:
    """The cell and training size that a row belongs to."""
    return tuple(row[name] for name in (*CELL_COLUMNS, "n_train"))


def summarise(
    table: pl.DataFrame,
    sets: Iterable[TextSet],
    resampling: Mapping[CellKey, ResamplingInfo] | None = None,
    *,
    metrics: Mapping[str, str],
    protocol: str = "repeats",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary and the baselines of a run, as JSON-ready values.

    `metrics` are the main metrics by data set.
    `resampling` tells how the repeats of a cell were drawn, where its rows don't.
    """
    results, baselines = [], {}
    for texts in sets:
        of_set = table.filter(pl.col("data") == texts.name)
        for model in of_set["model"].unique(maintain_order=True):
            rows = of_set.filter(pl.col("model") == model)
            found = _finding(
                rows, model, texts, metrics[texts.name], resampling or {}, protocol=protocol
            )
            baselines[f"{model} on {texts.name}"] = found.pop("baselines")
            results.append(found)
    several, short = len(results) > 1, short_names(f["model"] for f in results)
    verdict = [
        (f"{short[f['model']]} on {f['data']}: {line}" if several else line)
        for f in results
        for line in f["verdict"]
    ]
    summary = {
        "metric": results[0]["metric"],
        "headline": next((f["headline"] for f in results if f["headline"]), None),
        "verdict": verdict,
        "results": results,
        "cells": table.select(CELL_COLUMNS).unique().height,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _largest_size(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The rows of a learning curve at its largest training size."""
    judged = pl.col("metric").is_in(
        [metric, metric + VALIDATION_SUFFIX, TIE_METRIC + VALIDATION_SUFFIX]
    )
    largest = pl.col("n_train").filter(pl.col("metric") == metric).max()
    at_largest = (pl.col("n_train") == largest) | (pl.col("status") == "failed")
    return rows.filter(~judged | at_largest)


def _finding(
    rows: pl.DataFrame,
    model: str,
    texts: TextSet,
    metric: str,
    resampling: Mapping[CellKey, ResamplingInfo],
    *,
    protocol: str,
) -> dict[str, Any]:
    """The headline, the verdict and the baselines of one model on one data set."""
    from cutaway.methods.probe.verdict import verdict_sentences

    evidence = make_evidence(rows, metric, resampling, protocol=protocol)
    failed = rows.filter(pl.col("status") == "failed")
    failures = []
    if failed.height:
        many = "1 cell failed" if failed.height == 1 else f"{failed.height} cells failed; the first"
        failures = [f"{many}: {failed['reason'][0]}"]
    shared = {"model": model, "data": texts.name, "task": texts.task, "metric": metric}
    if not evidence.cells:
        verdict = ["No cell could be measured.", *failures]
        empty = {"headline": None, "best_on_test": None}
        return {**shared, **empty, "verdict": verdict, "baselines": {}}
    chosen = dict(zip(evidence.repeats, evidence.choice.by_repeat, strict=True))
    warning = warn_accuracy(rows, chosen, texts, protocol=protocol)
    evidence = replace(evidence, task=texts.task, warning=warning)
    facts = {"model": model, "data": texts.name, "metric": metric}
    majority = evidence.baselines.get("majority")
    chance = chance_level(texts, metric) if majority is None else majority.mean
    return {
        **shared,
        "headline": {**facts, "chance": chance, **headline_facts(evidence)},
        "best_on_test": {**facts, "chance": chance, **best_on_test_facts(evidence)},
        "verdict": [*verdict_sentences(evidence), *failures],
        "baselines": {name: score.mean for name, score in evidence.baselines.items()},
    }


def make_evidence(
    rows: pl.DataFrame,
    metric: str,
    resampling: Mapping[CellKey, ResamplingInfo],
    *,
    protocol: str = "repeats",
) -> Evidence:
    """What a verdict on these rows, of one model and data set, is based on.

    A learning curve is judged at its largest training size.
    """
    curve_rows = None
    if protocol == "curve":
        rows = _largest_size(rows, metric)
        curve_rows = max(rows.filter(pl.col("metric") == metric)["n_train"].to_list(), default=None)
    done = rows.filter(pl.col("status") == "done")
    repeats = done.filter((pl.col("kind") == "probe") & (pl.col("metric") == metric))["repeat"]
    order = tuple(sorted(set(repeats)))
    scores = {
        kind: _probe_scores(done.filter(pl.col("kind") == kind), metric, resampling, order)
        for kind in ("probe", "twin", "control", "baseline")
    }
    seen = done.filter(pl.col("metric") == WORDS_SEEN)["value"]
    evidence = Evidence(
        metric=metric,
        cells=scores["probe"],
        baselines={s.classifier: s for s in scores["baseline"]},
        twins=scores["twin"],
        controls=scores["control"],
        repeats=order,
        control_seen=None if seen.is_empty() else float(np.mean(seen.to_numpy())),
        repeat_name="fold" if protocol == "kfold" else "repeat",
        curve_rows=curve_rows,
    )
    return replace(evidence, mdl=_mdl_of_chosen(rows, evidence))


def _probe_scores(
    rows: pl.DataFrame,
    metric: str,
    resampling: Mapping[CellKey, ResamplingInfo],
    order: Sequence[int],
) -> tuple[ProbeScore, ...]:
    """The cells of one kind; a repeat in which one was not measured is NaN."""
    names = (metric, metric + VALIDATION_SUFFIX, TIE_METRIC + VALIDATION_SUFFIX)
    scores = []
    for _, cell in rows.sort(CHOICES).group_by(CHOICES, maintain_order=True):
        group = cell.filter(pl.col("metric") == metric)
        if group.is_empty():
            continue
        columns = [
            dict(cell.filter(pl.col("metric") == name).select("repeat", "value").iter_rows())
            for name in names
        ]
        values, validation, ties = (
            _with_nan([column.get(repeat) for repeat in order]) for column in columns
        )
        first = group.sort("repeat").row(0, named=True)
        train, test = (float(np.mean(group[k].to_numpy())) for k in ("n_train", "n_test"))
        info = resampling.get(cell_key(first), ResamplingInfo(train, test))
        where = {name: first[name] for name in CHOICES}
        info = _for_repeats(info, values)
        scores.append(ProbeScore(values, info, **where, validation=validation, ties=ties))
    return tuple(sorted(scores, key=lambda s: int(s.layers) if s.layers.isdigit() else math.inf))


def _for_repeats(info: ResamplingInfo, values: Sequence[float]) -> ResamplingInfo:
    """The same with blocks for repeats without a value, too."""
    if not info.blocks or len(info.blocks) == len(values):
        return info
    known, empty = iter(info.blocks), (math.nan,) * len(info.blocks[0])
    blocks = tuple(empty if math.isnan(v) else next(known, empty) for v in values)
    return replace(info, blocks=blocks)


def _mdl_of_chosen(rows: pl.DataFrame, evidence: Evidence) -> tuple[float, float, float] | None:
    """Code length, prior and uniform code length at the chosen layers and pooler, in bits."""
    if not evidence.cells:
        return None
    top = evidence.headline
    here = rows.filter((pl.col("layers") == top.layers) & (pl.col("pool") == top.pool))
    bits, prior, uniform = (
        here.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("mdl_bits", "mdl_prior_bits", "mdl_uniform_bits")
    )
    return (bits[0], prior[0], uniform[0]) if bits and prior and uniform else None
