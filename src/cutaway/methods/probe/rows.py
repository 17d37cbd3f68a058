"""The results of probe cells: tidy rows, figure details, and how their repeats were drawn."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from cutaway.measure.repeats import (
    RepeatMetrics,
    ResamplingInfo,
    group_by_size,
    metric_interval,
    resampling_info,
)
from cutaway.methods.probe.details import AnyDetail, validate_details
from cutaway.recipe.table import Row, table
from cutaway.store.progress import Progress

CELL_COLUMNS = ("model", "data", "kind", "layers", "pool", "classifier")
COORDINATES = (*CELL_COLUMNS, "repeat", "n_train", "n_val", "n_test")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(CELL_COLUMNS, pl.String),
    **dict.fromkeys(("repeat", "n_train", "n_val", "n_test"), pl.Int64),
    "metric": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
MAIN_METRIC = {
    "binary": "accuracy",
    "multiclass": "accuracy",
    "multilabel": "f1_macro",
    "regression": "r2",
}
"""The metric that best cells and verdicts refer to, by task."""
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

    def save(self, progress: Progress, key: str) -> None:
        """Keep the piece among the finished ones of its run."""
        details: list[dict[str, Any]] = [
            {"figure": d.model_dump(mode="json")} for d in self.details
        ]
        for cell, info in self.resampling.items():
            blocks = [None if math.isnan(value) else value for value in info.blocks]
            details.append({"cell": list(cell), "resampling": {**asdict(info), "blocks": blocks}})
        progress.put(key, self.rows, details)


def load_results(progress: Progress, keys: Sequence[str]) -> PieceResult:
    """The results of these finished pieces, in this order."""
    stored = progress.details(keys)
    details = validate_details([entry["figure"] for entry in stored if "figure" in entry])
    resampling = {}
    for entry in stored:
        if "resampling" in entry:
            info = entry["resampling"]
            blocks = tuple(math.nan if value is None else value for value in info["blocks"])
            resampling[tuple(entry["cell"])] = ResamplingInfo(**{**info, "blocks": blocks})
    return PieceResult(progress.rows(keys), details, resampling)


def cell_result(
    cell: ProbeCell, repeats: Sequence[RepeatMetrics], details: list[AnyDetail], metric: str
) -> PieceResult:
    """The result of a measured cell; `metric` is the main one."""
    resampling = {
        cell_key(row_coordinates(cell, group[0])): resampling_info(group, metric)
        for group in group_by_size(repeats)
        if metric in group[0].metrics and (group[0].tested or group[0].drawn)
    }
    return PieceResult(cell_rows(cell, repeats), details, resampling)


def cell_rows(cell: ProbeCell, repeats: Sequence[RepeatMetrics]) -> list[Row]:
    """One row per repeat and metric; low and high are those of the mean over repeats."""
    rows = []
    for group in group_by_size(repeats):
        for metric in group[0].metrics:
            interval = metric_interval([r.metrics[metric] for r in group], group, metric)
            bounds = {"low": _finite_or_none(interval.low), "high": _finite_or_none(interval.high)}
            for one in group:
                value = {"metric": metric, "value": _finite_or_none(one.metrics[metric])}
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


def _finite_or_none(value: float) -> float | None:
    """A finite number, or None: JSON and SQL have no NaN."""
    return float(value) if math.isfinite(value) else None
