"""The numbers of a fine-tuning: scores with intervals, the tidy table, the verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cutaway.measure.intervals import Interval, bootstrap, wilson
from cutaway.measure.metrics import METRICS, evaluate, metrics_for_task
from cutaway.run.question import PromptedExamples, predict_from_proba
from cutaway.run.table import Row, bounds, table
from cutaway.run.training import TrainingResult

FINETUNE_SCHEMA = {
    "base": pl.String,
    "task": pl.String,
    "mode": pl.String,
    "kind": pl.String,
    "shots": pl.Int64,
    "seed": pl.Int64,
    "step": pl.Int64,
    "part": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}
Scores = dict[str, Interval]
NAN = float("nan")


@dataclass(frozen=True)
class FinetuneCoordinates:
    """The coordinates that all rows of a run share."""

    base: str
    task: str
    mode: str
    shots: int | None
    seed: int

    def rows(self, kind: str, step: int, part: str, scores: Mapping[str, Any]) -> list[Row]:
        """One row per metric; a bare number has no interval."""
        return [self.row(kind, step, part, name, value) for name, value in scores.items()]

    def row(self, kind: str, step: int, part: str, metric: str, value: Any) -> Row:
        """One cell."""
        cell = {**asdict(self), "kind": kind, "step": step, "part": part, "metric": metric}
        return cell | bounds(value)


def metric_names(asked: PromptedExamples) -> list[str]:
    """What is measured: the task's own metric first, then what its kind is measured by."""
    return list(
        dict.fromkeys([asked.metric, *(metric.name for metric in metrics_for_task(asked.task))])
    )


def metric_values(
    asked: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str]
) -> dict[str, float]:
    """The metrics of these answers, without intervals."""
    scores = probabilities[:, 1] if asked.task == "binary" else probabilities
    decided = predict_from_proba(asked, probabilities)
    return evaluate(asked.labels, decided, scores, task=asked.task, names=names)


def scores_with_intervals(
    asked: PromptedExamples, probabilities: NDArray[np.float64], names: Sequence[str] = ()
) -> Scores:
    """Metrics with 95 % intervals: Wilson's for accuracy, the bootstrap's for the others.

    The calibration error has none: resampling is biased for it.
    """
    values = metric_values(asked, probabilities, names or metric_names(asked))
    return {name: _interval(asked, probabilities, name, value) for name, value in values.items()}


def _interval(
    asked: PromptedExamples, probabilities: NDArray[np.float64], name: str, value: float
) -> Interval:
    n = len(asked)
    if name == "accuracy":
        return wilson(value * n, n)
    if name == "ece" or n < 2:
        return Interval(value, NAN, NAN, 0.95, n)

    def again(rows: NDArray[np.int64]) -> float:
        return metric_values(asked.take(rows), probabilities[rows], [name])[name]

    found = bootstrap(again, n, seed=0, resamples=200)
    return Interval(value, found.low, found.high, 0.95, n)


def majority_scores(asked: PromptedExamples) -> Scores:
    """The scores of one answer for all: the commonest class, or the mean."""
    n, many = len(asked), asked.targets.shape[1]
    if asked.task == "regression":
        low, high = asked.bounds
        share = (float(np.mean(asked.labels)) - low) / max(high - low, 1e-12)
        constant = np.tile([1 - share, share], (n, 1))
    else:
        shares = np.bincount(asked.labels.astype(np.int64), minlength=many) / n
        constant = np.tile(shares, (n, 1))
    names = [name for name in metric_names(asked) if METRICS[name].needs != "score"]
    values = metric_values(asked, constant, names)
    return {name: _interval_without_bootstrap(name, value, n) for name, value in values.items()}


def _interval_without_bootstrap(name: str, value: float, n: int) -> Interval:
    return wilson(value * n, n) if name == "accuracy" else Interval(value, NAN, NAN, 0.95, n)


def curve_rows(where: FinetuneCoordinates, curve: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The training curve: losses of train, scores of dev."""
    rows = []
    for point in curve:
        step = int(point["step"])
        for name, value in point.items():
            if name == "step" or value is None:
                continue
            part = "dev" if name.startswith("dev_") else "train"
            kind = "tuned" if step else "base"
            rows.append(where.row(kind, step, part, name.removeprefix("dev_"), value))
    return rows


def finetune_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table with every column of the schema; NaN becomes null."""
    return table(rows, FINETUNE_SCHEMA)


def finetune_verdict(
    where: FinetuneCoordinates,
    metric: str,
    scores: Mapping[str, Scores],
    trained: TrainingResult,
    rows: int,
) -> list[str]:
    """What follows from the numbers, in sentences."""
    before, after, always = (scores[kind][metric] for kind in ("base", "tuned", "majority"))
    shots = f" ({where.shots} a class)" if where.shots else ""
    said = [
        f"{metric} on {where.task} went from {_format_score(before.mean)} to {_format_score(after.mean)} "
        f"(95 %: {_format_score(after.low)} to {_format_score(after.high)}, {after.n} test rows) in "
        f"{trained.best_step} steps on {rows} rows{shots}; one answer for all gets "
        f"{_format_score(always.mean)}."
    ]
    if not after.low > always.mean and not np.isnan(always.mean):
        said.append("That is not clearly better than one answer for all: train longer, with a "
                    "higher learning rate, or on more rows.")  # fmt: skip
    elif not after.mean > before.mean:
        said.append("The model was as good before: this training taught it nothing measurable.")
    if "ece" in scores["tuned"]:
        error = {kind: scores[kind]["ece"].mean for kind in ("base", "tuned")}
        said.append(f"Its calibration error went from {_format_score(error['base'])} to "
                    f"{_format_score(error['tuned'])}.")  # fmt: skip
    return said


def _format_score(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.3f}"
