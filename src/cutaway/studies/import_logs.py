"""Imports experiment logs of the probing reference as probe runs: one per log and data set.

Every experiment keeps its own cell. Two experiments of a log with the same settings (the reference
run twice) go into two runs, since the cells of a run differ in their coordinates.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.digest import digest_json
from cutaway.data.reference_names import NAME_TABLES, ReferenceNames, read_names
from cutaway.methods.probe import details as detail_file
from cutaway.methods.probe.details import LossCurves
from cutaway.methods.probe.rows import SCHEMA
from cutaway.report.metric_labels import lower_is_better, measured_metrics
from cutaway.store import results as store
from cutaway.store.versions import versions
from cutaway.studies.reference_logs import LoggedExperiment, read_experiments

# What the reference's classifiers without gradients do in classification.
CUT_NOTE = (
    "The reference tunes one threshold for accuracy and another for F1 on validation rows, except "
    "for its trained networks: compare with our accuracy_ref and f1_ref."
)
IMPORT_SCHEMA = {**SCHEMA, "experiment": pl.String}


@dataclass(frozen=True)
class ImportedLogs:
    """What an import made."""

    addresses: tuple[str, ...]
    experiments: int
    unmatched: tuple[str, ...]
    """Names that the table of names doesn't have: 'data "My set"'."""


def import_experiments(
    path: Path, runs: Path | str, names_file: str | Path | None = None
) -> ImportedLogs:
    """Import a log file, or all log files of a folder."""
    names, seen = read_names(names_file), Counter[tuple[Any, ...]]()
    groups: dict[tuple[str, str, int], list[LoggedExperiment]] = defaultdict(list)
    experiments = read_experiments(path)
    for one in experiments:
        first = one.rows(names)[0]
        cell = (one.log, *one.cell(names).values(), first["n_train"])
        groups[one.log, first["data"], seen[cell]].append(one)
        seen[cell] += 1
    made = [_save(group, names, runs) for _, group in sorted(groups.items())]
    return ImportedLogs(tuple(made), len(experiments), _unmatched(experiments, names))


def _unmatched(experiments: Sequence[LoggedExperiment], names: ReferenceNames) -> tuple[str, ...]:
    """The names of classifiers and data sets that stay as they are in the log."""
    given = {("classifier", str(e.settings["classifier"])) for e in experiments}
    given |= {("data", str(e.metadata.get("name", "unknown"))) for e in experiments}
    ours = {t: set(map(str, names.tables[t].values())) for t in NAME_TABLES}
    return tuple(
        f'{table} "{name}"'
        for table, name in sorted(given)
        if names.find(table, name) is None and name not in ours[table]
    )


def _save(group: list[LoggedExperiment], names: ReferenceNames, runs: Path | str) -> str:
    rows = [row for experiment in group for row in experiment.rows(names)]
    table = pl.DataFrame(rows, schema=IMPORT_SCHEMA, orient="row")
    log, name = group[0].log, rows[0]["data"]
    address = digest_json({"imported": [log, rows]})[:16]
    models = table["model"].unique(maintain_order=True).sort().to_list()
    logged = str(group[0].metadata.get("name", "unknown"))
    store.save_record(
        runs, method="probe", address=address, spec={"imported": log},
        summary=_summary(logged, group, table), baselines={}, seed=None,
        model=[{"name": model} for model in models],
        data={"name": name, "rows": None, "digest": None, "logged_as": logged},
        versions=versions(), seconds=0.0, peak_memory_mb=None,
        command=f"cutaway import {log}", rows=table,
        files={detail_file.DETAILS_FILE: detail_file.dump_details(_losses(group, names))},
    )  # fmt: skip
    return address


def _summary(logged: str, group: list[LoggedExperiment], table: pl.DataFrame) -> dict[str, Any]:
    """The highest mean of the log, and sentences about what the log has and lacks."""
    metric = measured_metrics(table)[0]
    cell = ["model", "data", "layers", "pool", "classifier", "n_train"]
    means = table.filter(pl.col("metric") == metric).group_by(cell, maintain_order=True).agg(
        pl.col("value").mean(), pl.col("low").first(), pl.col("high").first()
    )  # fmt: skip
    ranked = means.sort("value", descending=not lower_is_better(metric), maintain_order=True)
    best = ranked.row(0, named=True)
    return {
        "imported": True, "metric": metric, "best": {"metric": metric, **best},
        "verdict": _sentences(logged, group, table, best, metric), "experiments": len(group),
    }  # fmt: skip


def _sentences(
    logged: str, group: list[LoggedExperiment], table: pl.DataFrame, best: Any, metric: str
) -> list[str]:
    name = f"{best['data']} (in the log: {logged})" if logged != best["data"] else logged
    layer = f"layer {best['layers']}"
    many = "1 experiment" if len(group) == 1 else f"{len(group)} experiments"
    found = [
        f"Imported from {group[0].log}: {many} on {name}; the best mean "
        f"{metric} is {best['value']:.3f} ({best['classifier']} on {best['model']}, {layer}), "
        "picked by the test scores."
    ]
    lengths = [n for e in group if isinstance(n := e.metadata.get("train len"), int)]
    if lengths:
        found.append(
            f"{len(lengths)} of them are points of learning curves, with {min(lengths):,} to "
            f"{max(lengths):,} training texts."
        )
    found += [CUT_NOTE] * (metric == "accuracy")
    notes = "; ".join(table["reason"].unique(maintain_order=True)).split("; ")
    found += [f"Note on the reference: {note}." for note in dict.fromkeys(notes) if note]
    return [*found, "The log has no baselines and no predictions."]


def _losses(group: list[LoggedExperiment], names: ReferenceNames) -> list[LossCurves]:
    """Loss curves of probes trained by gradient descent, if the log has them."""
    curves = []
    for experiment in group:
        train = [x for x in experiment.losses.get("train loss", ()) if math.isfinite(x)]
        if train:
            cell = {k: v for k, v in experiment.cell(names).items() if k != "kind"}
            validation = experiment.losses.get("validation loss", ())
            curves.append(LossCurves(**cell, train=tuple(train), validation=tuple(validation)))
    return curves
