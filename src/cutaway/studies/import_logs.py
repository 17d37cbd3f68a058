"""Experiment logs of the probing reference become runs of our own kind, one per data set."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, Missing
from cutaway.data.import_logs import LoggedExperiment, read_experiments
from cutaway.methods.probe import details as detail_file
from cutaway.methods.probe.details import LossCurves
from cutaway.methods.probe.rows import SCHEMA
from cutaway.recipe.result import versions
from cutaway.store import results as store


def import_experiments(path: Path, runs: Path | str) -> list[str]:
    """The addresses of the runs made from a log file, or from all log files of a folder."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise Missing(f"No log files (*.json) in {str(path)!r}.")
    experiments = [experiment for file in files for experiment in read_experiments(file)]
    if not experiments:
        raise BadData(f"{str(path)!r} holds no experiments.")
    by_data: dict[str, list[LoggedExperiment]] = defaultdict(list)
    for experiment in experiments:
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
    """The best mean of the log, with a sentence that says what is missing."""
    metric = "accuracy" if "accuracy" in table["metric"].to_list() else table["metric"][0]
    cell = ["model", "layers", "pool", "classifier"]
    means = table.filter(pl.col("metric") == metric).group_by(cell).agg(
        pl.col("value").mean(), pl.col("low").first(), pl.col("high").first()
    )  # fmt: skip
    best = means.sort("value", descending=True).row(0, named=True)
    said = (
        f"Imported: {len(group)} experiments on {name}; the best mean {metric} is "
        f"{best['value']:.3f} ({best['classifier']} on {best['model']}, layer {best['layers']}). "
        "The log has no baselines and no split sizes."
    )
    return {
        "imported": True, "metric": metric, "verdict": [said],
        "best": {"data": name, "metric": metric, **best},
    }  # fmt: skip


def _losses(group: list[LoggedExperiment]) -> list[LossCurves]:
    """Loss curves of gradient-trained probes, where the log kept them."""
    kept = []
    for experiment in group:
        rows = experiment.rows()
        train = [x for x in experiment.losses.get("train loss", ()) if math.isfinite(x)]
        if train and rows:
            where = {k: rows[0][k] for k in ("model", "data", "layers", "pool", "classifier")}
            rest = experiment.losses.get("validation loss", ())
            kept.append(LossCurves(**where, train=tuple(train), validation=tuple(rest)))
    return kept
