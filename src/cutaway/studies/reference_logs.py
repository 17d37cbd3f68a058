"""Reads experiment logs of the probing reference implementation as rows of probe tables."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadData, Missing
from cutaway.data.files import path_kind, read_text
from cutaway.data.table import truncate
from cutaway.home import expand_path
from cutaway.measure.intervals import corrected_t

# Its random splits: 70 % train, 10 % validation, 20 % test.
SPLIT_SHARES = {"train": 0.7, "test": 0.2}

METRIC_NAMES = {"Accuracy": "accuracy", "F1": "f1", "R2": "r2", "MSE": "mse"}

LOSS_NAMES = ("train loss", "validation loss", "test loss")

# A log of one experiment, as the reference writes it, has these at the top.
TABLES = {"metadata", "expdata", "data"}

LAST_LAYER_NOTE = (
    "layer -1 of the reference: its README says the last layer but one, its code takes the last"
)

# Its layer_method in the notation of --layers.
LAYER_MIXES = {"mean": "mean", "max": "max", "min": "min", "extend": "concat", "concat": "concat"}


@dataclass(frozen=True)
class LoggedExperiment:
    """One experiment of a log: its settings, scores per repeat, and losses."""

    name: str
    metadata: dict[str, Any]
    settings: dict[str, Any]
    scores: dict[str, tuple[float, ...]]
    losses: dict[str, tuple[float, ...]]

    def rows(self) -> list[dict[str, Any]]:
        """One row per repeat and metric, in the columns of a probe table."""
        layer = self.settings.get("layer")
        cell = {
            "model": str(self.settings["model"]),
            "data": str(self.metadata.get("name", "unknown")),
            "kind": "probe",
            "layers": _layers(layer, self.settings.get("layer_method")),
            "pool": _pool(self.settings.get("quantile")),
            "classifier": str(self.settings["classifier"]),
        }
        reason = LAST_LAYER_NOTE if layer == -1 else ""
        return [{**cell, **row, "status": "done", "reason": reason} for row in self._measured()]

    def _measured(self) -> Iterator[dict[str, Any]]:
        """One row per metric and repeat; the log has no split sizes, so these are empty."""
        sizes = dict.fromkeys(("n_train", "n_val", "n_test"))
        for metric, values in self.scores.items():
            mean = corrected_t(values, n_train=SPLIT_SHARES["train"], n_test=SPLIT_SHARES["test"])
            known = len(values) > 1
            borders = {"low": mean.low, "high": mean.high} if known else {"low": None, "high": None}
            for repeat, value in enumerate(values):
                yield {"repeat": repeat, **sizes, "metric": metric, "value": value, **borders}


def read_experiments(path: str | Path) -> list[LoggedExperiment]:
    """The experiments in a log file or a folder of them, in the order of their numbers."""
    path = expand_path(path)
    if path_kind(path) == "folder":
        logs = sorted(path.glob("*.json"), key=lambda log: _experiment_number(log.stem))
        if not logs:
            raise Missing(f"No .json file in {str(path)!r}. Name an experiment log.")
        return [experiment for log in logs for experiment in read_experiments(log)]
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise Missing(f"No log at {str(path)!r} ({error}). Check the path.") from None
    return parse_experiments(path.name, _parse_json(path.name, text))


def parse_experiments(where: str, log: Any) -> list[LoggedExperiment]:
    """The experiments in a parsed log: one, or several by name; BadData names the first invalid."""
    if isinstance(log, Mapping) and set(log) >= TABLES:
        return [_experiment(where, Path(where).stem, log)]
    if not isinstance(log, Mapping) or not log:
        raise BadData(f"{where} has no experiments. Expected {{'experiment_0': {{...}}, ...}}.")
    return [
        _experiment(f"{where}, {name}", str(name), log[name])
        for name in sorted(log, key=_experiment_number)
    ]


def _parse_json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadData(
            f"{where} is not valid JSON: {truncate(error, 100)}. Is it truncated?"
        ) from None


def _experiment_number(name: Any) -> tuple[int, str]:
    number = str(name).rpartition("_")[2]
    return (int(number), str(name)) if number.isascii() and number.isdigit() else (-1, str(name))


def _experiment(where: str, name: str, entry: Any) -> LoggedExperiment:
    metadata = _require_table(where, entry, "metadata")
    settings = _require_table(where, entry, "expdata")
    data = _require_table(where, entry, "data")
    for key in ("model", "classifier", "layer"):
        if key not in settings:
            raise BadData(f"{where}: expdata has no {key!r}. It has: {', '.join(settings)}.")
    scores = {
        METRIC_NAMES.get(metric, metric.lower()): _numbers(where, metric, values)
        for metric, values in data.items()
        if metric not in LOSS_NAMES
    }
    if not scores:
        raise BadData(f"{where}: data holds no scores. It has: {', '.join(data) or 'nothing'}.")
    losses = {key: _numbers(where, key, data[key]) for key in LOSS_NAMES if key in data}
    # Classifiers without gradients log a single 0.
    trained = {key: values for key, values in losses.items() if values != (0.0,)}
    return LoggedExperiment(name, dict(metadata), dict(settings), scores, trained)


def _require_table(where: str, entry: Any, key: str) -> Mapping[str, Any]:
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if not isinstance(value, Mapping):
        raise BadData(f"{where} has no table {key!r}. Expected metadata, expdata and data.")
    return value


def _numbers(where: str, key: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise BadData(
            f"{where}: {key!r} is {truncate(repr(values), 40)}, expected a list of numbers."
        )
    for i, value in enumerate(values):
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not abs(value) < math.inf:
            raise BadData(
                f"{where}: {key!r} has {truncate(repr(value), 40)} at position {i + 1}, expected a "
                "finite number."
            )
    return tuple(float(value) for value in values)


def _layers(layer: Any, method: Any) -> str:
    """The layers in our notation; -1 stays -1, where the reference contradicts itself."""
    if isinstance(layer, list):
        return f"{LAYER_MIXES.get(str(method), str(method))}:{','.join(map(str, layer))}"
    return f"{LAYER_MIXES.get(str(method), 'mean')}:all" if layer == "all" else str(layer)


def _pool(quantile: Any) -> str:
    """The pooler in our notation: 1 and -1 are the last token, 0 the first."""
    if isinstance(quantile, list):
        return "+".join(_pool(one) for one in quantile)
    return {-1: "last", 1: "last", 0: "first", None: "last"}.get(quantile, f"q{quantile}")
