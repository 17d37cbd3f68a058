"""The table of a shortcut run: one row per measured cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.shortcut.maths.lens import PRECISION_KS, LayerPredictions
from cutaway.methods.shortcut.sample import StateSample, TextRows
from cutaway.models.lm import model_facts
from cutaway.recipe.life_cycle import Outcome
from cutaway.recipe.result import Row, bounds, table

SCHEMA = {
    "model": pl.String, "text": pl.String, "fitted_on": pl.String, "kind": pl.String,
    "source": pl.Int64, "target": pl.Int64, "layer": pl.Int64,
    "lambda": pl.Float64, "confidence": pl.String,
    "metric": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64,
}  # fmt: skip
PRECISION_METRICS = {f"precision@{k}": k for k in PRECISION_KS}


@dataclass(frozen=True)
class ShortcutCoordinates:
    """The columns that all rows of a run share."""

    model: str
    text: str
    """The texts that were measured on."""
    fitted_on: str
    """The texts that the maps were fitted on; maps are transferred where it differs from `text`."""

    @property
    def shared(self) -> dict[str, str]:
        """The columns of samples.parquet, where `text` is the sample's own text."""
        return {"model": self.model, "set": self.text, "fitted_on": self.fitted_on}

    def row(self, kind: str, metric: str, value: float | Interval, **columns: Any) -> Row:
        """One cell; a bare number has no interval."""
        shared = {"model": self.model, "text": self.text, "fitted_on": self.fitted_on}
        return {**shared, "kind": kind, "metric": metric, **columns, **bounds(value)}


def shortcut_outcome(
    verb: str,
    sample: StateSample,
    *,
    summary: Mapping[str, Any],
    baselines: Any,
    rows: Iterable[Row],
    parts: Mapping[str, TextRows],
    files: Mapping[str, Path | bytes] | None = None,
) -> Outcome:
    """What a verb measured, with the facts about its model and texts; `parts` are texts by use."""
    return Outcome(
        rows=table(rows, SCHEMA),
        summary={"verb": verb, **summary},
        baselines=baselines,
        model=model_facts(sample.lm),
        data=sample.facts,
        files=files or {},
        splits=sample.splits(parts),
    )


def r2_rows(
    coordinates: ShortcutCoordinates, r2: Mapping[tuple[str, tuple[Any, Any]], float]
) -> list[Row]:
    """One row per kind and pair of layers."""
    return [
        coordinates.row(kind, "r2", value, source=source, target=target, layer=source)
        for (kind, (source, target)), value in r2.items()
    ]


def prediction_rows(
    coordinates: ShortcutCoordinates, kind: str, layer: int, last: int, predicted: LayerPredictions
) -> list[Row]:
    """Precision@k, surprisal, KL, entropy and perplexity of one layer through one map."""
    values: dict[str, Interval] = {}
    for name, k in PRECISION_METRICS.items():
        hits = predicted.in_top(k)
        values[name] = wilson(float(hits.sum()), len(hits))
    for name in ("surprisal", "kl", "entropy"):
        values[name] = _mean_interval(getattr(predicted, name).double().numpy())
    values["perplexity"] = perplexity(predicted)
    layers = {"source": layer, "target": last, "layer": layer}
    return [coordinates.row(kind, name, value, **layers) for name, value in values.items()]


def in_display_order(rows: Iterable[Row]) -> list[Row]:
    """Rows with precision@1 first, then precision@5 and @10, each by layer."""
    order = {name: i for i, name in enumerate(PRECISION_METRICS)}
    return sorted(rows, key=lambda row: (order.get(row["metric"], 9), row["layer"]))


def perplexity(predicted: LayerPredictions) -> Interval:
    """exp of the mean loss where a next token is known; the interval is that of the loss."""
    loss = _mean_interval(predicted.loss.double().numpy())
    mean, low, high = np.exp([loss.mean, loss.low, loss.high]).tolist()
    return Interval(mean, low, high, loss.level, loss.n)


def _mean_interval(values: Any) -> Interval:
    """The plain t interval of a mean over independent examples (no overlapping training sets)."""
    return corrected_t(values, n_train=1, n_test=0)
