"""The tidy table of a shortcut run: one row per measured cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.shortcut.maths.lens import PRECISION_KS, LayerPredictions
from cutaway.recipe.table import Row, bounds, table

SCHEMA = {
    "model": pl.String,
    "text": pl.String,
    "fitted_on": pl.String,
    "kind": pl.String,
    "source": pl.Int64,
    "target": pl.Int64,
    "layer": pl.Int64,
    "lambda": pl.Float64,
    "confidence": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


@dataclass(frozen=True)
class ShortcutCoordinates:
    """The coordinates that all rows of a run share."""

    model: str
    text: str
    """What was measured on."""
    fitted_on: str
    """The text that the maps come from: transfer is where it differs from `text`."""

    def row(self, kind: str, metric: str, value: float | Interval, **place: Any) -> Row:
        """One cell; a bare number has no interval."""
        shared = {"model": self.model, "text": self.text, "fitted_on": self.fitted_on}
        return {**shared, "kind": kind, "metric": metric, **place, **bounds(value)}


def shortcut_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, SCHEMA)


def r2_rows(
    where: ShortcutCoordinates, r2: Mapping[tuple[str, tuple[Any, Any]], float]
) -> list[Row]:
    """One row per kind and pair of layers."""
    return [
        where.row(kind, "r2", value, source=source, target=target, layer=source)
        for (kind, (source, target)), value in r2.items()
    ]


def prediction_rows(
    where: ShortcutCoordinates, kind: str, layer: int, last: int, reading: LayerPredictions
) -> list[Row]:
    """Precision@k, surprisal, KL, entropy and perplexity of one layer read through one map."""
    place = {"source": layer, "target": last, "layer": layer}
    hits = {f"precision@{k}": reading.hit(k) for k in PRECISION_KS}
    rows = [
        where.row(kind, name, wilson(float(hit.sum()), len(hit)), **place)
        for name, hit in hits.items()
    ]
    for name in ("surprisal", "kl", "entropy"):
        values = getattr(reading, name).double().numpy()
        rows.append(where.row(kind, name, _mean_interval(values), **place))
    return [*rows, where.row(kind, "perplexity", perplexity(reading), **place)]


def in_display_order(rows: Iterable[Row]) -> list[Row]:
    """Readings in the order in which people look at them: precision@1 first, layer by layer."""
    place = {name: i for i, name in enumerate(("precision@1", "precision@5", "precision@10"))}
    return sorted(rows, key=lambda row: (place.get(row["metric"], 9), row["layer"]))


def perplexity(reading: LayerPredictions) -> Interval:
    """exp of the mean loss where a next token is known; the interval is that of the loss."""
    loss = _mean_interval(reading.loss.double().numpy())
    mean, low, high = np.exp([loss.mean, loss.low, loss.high]).tolist()
    return Interval(mean, low, high, loss.level, loss.n)


def _mean_interval(values: Any) -> Interval:
    """The plain t interval of a mean over independent examples: nothing overlaps."""
    return corrected_t(values, n_train=1, n_test=0)
