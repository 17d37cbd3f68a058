"""Imports experiment logs of the probing reference as probe runs, one per data set."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.digest import digest_json
from cutaway.methods.probe import details as detail_file
from cutaway.methods.probe.details import LossCurves
from cutaway.methods.probe.rows import SCHEMA
from cutaway.store import results as store
from cutaway.store.versions import versions
from cutaway.studies.reference_logs import LoggedExperiment, read_experiments


def import_experiments(path: Path, runs: Path | str) -> list[str]:
    """Import a log file, or all log files of a folder; returns the addresses of the new runs."""
    by_data: dict[str, list[LoggedExperiment]] = defaultdict(list)
    for experiment in read_experiments(path):
        by_data[str(experiment.metadata.get("name", "unknown"))].append(experiment)
    return [_save(name, group, path, runs) for name, group in sorted(by_data.items())]


def _save(name: str, group: list[LoggedExperiment], path: Path, runs: Path | str) -> str:
    rows = [row for experiment in group for row in experiment.rows()]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    address = digest_json({"imported": [[e.name, e.rows()] for e in group]})[:16]
    models = sorted({str(e.settings["model"]) for e in group})
    store.save_record(
        runs, method="probe", address=address, spec={"imported": path.name},
        summary=_summary(name, group, table), baselines={}, seed=None,
        model=[{"name": model} for model in models],
        data={"name": name, "rows": group[0].metadata.get("size"), "digest": None},
        versions=versions(), seconds=0.0, peak_memory_mb=None,
        command=f"cutaway import {path.name}", rows=table,
        files={detail_file.DETAILS_FILE: detail_file.dump_details(_losses(group))},
    )  # fmt: skip
    return address


def _summary(name: str, group: list[LoggedExperiment], table: pl.DataFrame) -> dict[str, Any]:
    """The best mean of the log, and a sentence about what the log lacks."""
    metric = "accuracy" if "accuracy" in table["metric"].to_list() else table["metric"][0]
    cell = ["model", "layers", "pool", "classifier"]
    means = table.filter(pl.col("metric") == metric).group_by(cell).agg(
        pl.col("value").mean(), pl.col("low").first(), pl.col("high").first()
    )  # fmt: skip
    best = means.sort("value", descending=True).row(0, named=True)
    sentence = (
        f"Imported: {len(group)} experiments on {name}; the best mean {metric} is "
        f"{best['value']:.3f} ({best['classifier']} on {best['model']}, layer {best['layers']}). "
        "The log has no baselines and no split sizes."
    )
    return {
        "imported": True, "metric": metric, "verdict": [sentence],
        "best": {"data": name, "metric": metric, **best},
    }  # fmt: skip


def _losses(group: list[LoggedExperiment]) -> list[LossCurves]:
    """Loss curves of probes trained by gradient descent, if the log has them."""
    curves = []
    for experiment in group:
        rows = experiment.rows()
        train = [x for x in experiment.losses.get("train loss", ()) if math.isfinite(x)]
        if train and rows:
            cell = {k: rows[0][k] for k in ("model", "data", "layers", "pool", "classifier")}
            validation = experiment.losses.get("validation loss", ())
            curves.append(LossCurves(**cell, train=tuple(train), validation=tuple(validation)))
    return curves
