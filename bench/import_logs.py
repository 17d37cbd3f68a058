"""Compares imported logs of the probing reference with their JSON, cell for cell.

    python -m bench.import_logs FOLDER

The public logs are the folder "Results Experiments" of github.com/EleutherAGI/Pipeline: ten files,
858 experiments.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from cutaway.store.results import results
from cutaway.studies.import_logs import import_experiments

CELL = ("address", "model", "data", "layers", "pool", "classifier", "n_train")


def compare(folder: Path, runs: Path) -> dict[str, int]:
    """Import the logs of a folder; counts, and an AssertionError at the first difference."""
    import_experiments(folder, runs)
    found = results(runs)
    raw = raw_experiments(folder)
    rows = found.query(
        "select rows.*, runs.spec->>'$.imported' as log, runs.data as logged from rows "
        "join runs using (method, address) order by repeat"
    )
    cells = rows.select(CELL).unique().height
    assert cells == len(raw), f"{len(raw)} experiments became {cells} cells"
    imported = rows.partition_by("log", "experiment", as_dict=True)
    assert set(imported) == set(raw), set(imported) ^ set(raw)
    for key, experiment in raw.items():
        same_experiment(key, imported[key], experiment)
    scores = found.query("select count(*) as n from scores").item()
    assert scores == len(raw), f"the view scores has {scores} lines for {len(raw)} experiments"
    curves = sum("train len" in e["metadata"] for e in raw.values())
    return {
        "files": len({log for log, _ in raw}), "experiments": len(raw), "cells": cells,
        "with train len": curves, "values": rows.height, "runs": len(found),
    }  # fmt: skip


def raw_experiments(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The experiments by log and name, straight from the JSON."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.json"))
    return {
        (file.name, name): experiment
        for file in files
        for name, experiment in json.loads(file.read_text(encoding="utf-8")).items()
    }


def same_experiment(key: tuple[str, str], rows: Any, raw: dict[str, Any]) -> None:
    """Every score, repeat by repeat, the training size, and what names the cell."""
    assert rows.select(CELL).unique().height == 1, f"{key}: several cells"
    for logged, metric in (("Accuracy", "accuracy"), ("F1", "f1"), ("R2", "r2"), ("MSE", "mse")):
        mine = rows.filter(rows["metric"] == metric)
        assert mine["value"].to_list() == raw["data"].get(logged, []), f"{key}: {metric}"
        assert mine["repeat"].to_list() == list(range(mine.height)), f"{key}: repeats"
    first, settings = rows.row(0, named=True), raw["expdata"]
    length = raw["metadata"].get("train len")
    assert length is None or first["n_train"] == length, f"{key}: n_train {first['n_train']}"
    layers, method = settings["layer"], settings["layer_method"]
    if isinstance(layers, list):
        assert first["layers"] == f"{method}:{','.join(map(str, layers))}", key
    elif layers != "all":
        assert first["layers"] == str(layers), key
    assert first["model"] == settings["model"], key
    assert (first["low"] or 0) <= rows.filter(rows["metric"] == first["metric"])["value"].mean()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        counted = Counter(compare(Path(sys.argv[1]), Path(made)))
    sys.stdout.write(", ".join(f"{n:,} {name}" for name, n in counted.items()) + ": all equal\n")
