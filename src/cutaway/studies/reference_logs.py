"""Reads experiment logs of the probing reference implementation as rows of probe tables.

The rows say what the reference's code did, which its README and its options don't always: see
`_layers` and `_split_sizes`. The code is the version whose logs name their scores ("Accuracy").
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadData, Missing
from cutaway.data.files import path_kind, read_text
from cutaway.data.reference_names import ReferenceNames, known_names
from cutaway.data.table import truncate
from cutaway.home import expand_path
from cutaway.measure.intervals import corrected_t
from cutaway.measure.repeats import RepeatMetrics, metric_interval

# Its random splits: 20 % test, 10 % validation, both rounded down, the rest for training.
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
# So many different accuracies are needed to infer the number of test rows from them.
ENOUGH_ACCURACIES = 5

METRIC_NAMES = {"Accuracy": "accuracy", "F1": "f1", "R2": "r2", "MSE": "mse"}

# Its layer_method, where it means the same before the layers in --layers.
LAYER_MIXES = ("mean", "max", "min")

LOSS_NAMES = ("train loss", "validation loss", "test loss")

# A log of one experiment, as the reference writes it, has these at the top.
TABLES = {"metadata", "expdata", "data"}

LAST_LAYER_NOTE = (
    "layer -1 of the reference: its README says the last layer but one, its code takes the last, "
    "after the final norm"
)
INNER_LAYERS_NOTE = "layer 'all' of the reference leaves out the embeddings and the last layer"
# The line that joins the layers is commented out in its code.
EXTEND_NOTE = (
    "layer_method 'extend' of the reference does not concatenate: its code uses the layers of a "
    "training text as so many rows with the same label, and only the last of these layers of "
    "validation and test texts (n_train counts texts)"
)


@dataclass(frozen=True)
class SplitSizes:
    """Rows of the reference's splits, None where the log doesn't tell."""

    n_train: int | None = None
    n_val: int | None = None
    n_test: int | None = None
    drawn: int | None = None
    """Rows that the training part was drawn from."""
    note: str = ""


@dataclass(frozen=True)
class LoggedExperiment:
    """One experiment of a log: its settings, scores per repeat, and losses."""

    log: str
    """The file it comes from, or the folder of files with one experiment each."""
    name: str
    metadata: dict[str, Any]
    settings: dict[str, Any]
    scores: dict[str, tuple[float, ...]]
    losses: dict[str, tuple[float, ...]]

    def cell(self, names: ReferenceNames) -> dict[str, Any]:
        """The coordinates of its cell, under our names."""
        model = str(self.settings["model"])
        layers, _ = self._layers(names)
        return {
            "model": names.name("model", model),
            "data": names.name("data", str(self.metadata.get("name", "unknown"))),
            "kind": "probe",
            "layers": layers,
            "pool": _pool(self.settings.get("quantile")),
            "classifier": names.name("classifier", str(self.settings["classifier"])),
        }

    def rows(self, names: ReferenceNames | None = None) -> list[dict[str, Any]]:
        """One row per repeat and metric, in the columns of a probe table, and `experiment`."""
        names = names or known_names()
        sizes = _split_sizes(self.metadata, self.scores.get("accuracy", ()))
        cell = self.cell(names)
        reason = "; ".join(note for note in (self._layers(names)[1], sizes.note) if note)
        more = {"status": "done", "reason": reason, "experiment": self.name}
        return [{**cell, **row, **more} for row in self._measured(sizes)]

    def _measured(self, sizes: SplitSizes) -> Iterator[dict[str, Any]]:
        """One row per metric and repeat."""
        columns = {name: getattr(sizes, name) for name in ("n_train", "n_val", "n_test")}
        for metric, values in self.scores.items():
            low, high = _bounds(metric, values, sizes)
            for repeat, value in enumerate(values):
                scored = {"metric": metric, "value": value, "low": low, "high": high}
                yield {"repeat": repeat, **columns, **scored}

    def _layers(self, names: ReferenceNames) -> tuple[str, str]:
        """The layers in our notation, and a note where the reference's code did something else."""
        layer, method = self.settings.get("layer"), str(self.settings.get("layer_method"))
        if layer == "all":
            blocks = names.find("blocks", str(self.settings["model"]))
            inner = "all" if blocks is None else f"1-{blocks - 1}"
            return f"{method if method in LAYER_MIXES else 'mean'}:{inner}", INNER_LAYERS_NOTE
        if not isinstance(layer, list):
            # Layers of ours are never negative, and layer L is before the final norm.
            return str(layer), LAST_LAYER_NOTE if layer == -1 else ""
        joined = ",".join(map(str, layer))
        if method in LAYER_MIXES:
            return f"{method}:{joined}", ""
        return f"extend:{joined}", EXTEND_NOTE if method == "extend" else ""


def _bounds(
    metric: str, values: tuple[float, ...], sizes: SplitSizes
) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean over its overlapping splits."""
    if sizes.n_train is None or sizes.n_test is None or sizes.n_val is None:
        shares = {"n_train": 1 - TEST_SHARE - VALIDATION_SHARE, "n_test": TEST_SHARE}
        found = corrected_t(values, **shares)
    else:
        rows = (sizes.n_train, sizes.n_val, sizes.n_test)
        group = [
            RepeatMetrics(i, *rows, {metric: value}, drawn=sizes.drawn)
            for i, value in enumerate(values)
        ]
        found = metric_interval(values, group, metric)
    low, high = (x if math.isfinite(x) else None for x in (found.low, found.high))
    return low, high


def _split_sizes(metadata: Mapping[str, Any], accuracies: Sequence[float]) -> SplitSizes:
    """The sizes of the splits, by the reference's code from the number of rows of the set.

    Its `size` field is that of the whole set, even if its file had fewer rows. An accuracy is a
    share of the test rows, so the accuracies show whether the field is true, and what is.
    """
    length = metadata.get("train len")
    n_train = length if isinstance(length, int) and length > 0 else None
    size = metadata.get("size")
    claimed = size if isinstance(size, int) and size > 0 else None
    total, note = claimed, ""
    if claimed and accuracies and not _are_shares(accuracies, int(TEST_SHARE * claimed)):
        tested = _infer_test_rows(accuracies, int(TEST_SHARE * claimed))
        if tested is None:
            return SplitSizes(n_train=n_train)
        total = round(tested / TEST_SHARE)
        note = (
            f"the log gives the size {claimed:,}, but its accuracies are shares of {tested:,} test "
            f"rows: a set of about {total:,} rows"
        )
    if total is None:
        return SplitSizes(n_train=n_train)
    n_test, n_val = int(TEST_SHARE * total), int(VALIDATION_SHARE * total)
    pool = total - n_test - n_val
    return SplitSizes(n_train or pool, n_val, n_test, drawn=pool, note=note)


def _are_shares(values: Sequence[float], n: int) -> bool:
    """Whether all values are whole numbers of n."""
    return n > 0 and all(abs(value * n - round(value * n)) < 1e-6 for value in values)


def _infer_test_rows(accuracies: Sequence[float], most: int) -> int | None:
    """The smallest number of rows that all accuracies are shares of, if there are enough."""
    if len(set(accuracies)) < ENOUGH_ACCURACIES:
        return None
    return next((n for n in range(1, most) if _are_shares(accuracies, n)), None)


def read_experiments(path: str | Path) -> list[LoggedExperiment]:
    """The experiments in a log file or a folder of them, in the order of their numbers."""
    path = expand_path(path)
    if path_kind(path) == "folder":
        logs = sorted(path.glob("*.json"), key=lambda log: _experiment_number(log.stem))
        if not logs:
            raise Missing(f"No .json file in {str(path)!r}. Name an experiment log.")
        return [experiment for log in logs for experiment in _read_log(log, folder=path.name)]
    return _read_log(path)


def _read_log(path: Path, folder: str = "") -> list[LoggedExperiment]:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise Missing(f"No log at {str(path)!r} ({error}). Check the path.") from None
    return parse_experiments(path.name, _parse_json(path.name, text), folder)


def parse_experiments(where: str, log: Any, folder: str = "") -> list[LoggedExperiment]:
    """The experiments in a parsed log: one, or several by name; BadData names the first invalid."""
    if isinstance(log, Mapping) and set(log) >= TABLES:
        return [_experiment(where, folder or where, Path(where).stem, log)]
    if not isinstance(log, Mapping) or not log:
        raise BadData(f"{where} has no experiments. Expected {{'experiment_0': {{...}}, ...}}.")
    return [
        _experiment(f"{where}, {name}", where, str(name), log[name])
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


def _experiment(where: str, log: str, name: str, entry: Any) -> LoggedExperiment:
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
    return LoggedExperiment(log, name, dict(metadata), dict(settings), scores, trained)


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


def _pool(quantile: Any) -> str:
    """The pooler in our notation: 1 and -1 are the last token, 0 the first."""
    if isinstance(quantile, list):
        return "+".join(_pool(one) for one in quantile)
    return {-1: "last", 1: "last", 0: "first", None: "last"}.get(quantile, f"q{quantile}")
