"""What every classifier receives and returns, and the metrics of its outputs on test rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.textset import Task
from cutaway.measure.calibration import ece
from cutaway.measure.metrics import METRICS, evaluate
from cutaway.measure.repeats import RowScores
from cutaway.measure.splits import Split
from cutaway.solvers.rows import RowBlocks, as_row_blocks

Link = Literal["logit", "probability", "margin", "value"]
CLASSIFICATION_TASKS: tuple[Task, ...] = ("binary", "multiclass", "multilabel")
ALL_TASKS: tuple[Task, ...] = (*CLASSIFICATION_TASKS, "regression")


@dataclass(frozen=True)
class FitSettings:
    """The task that a classifier is fitted for, and how."""

    task: Task
    classes: int
    """Number of classes or labels; 1 for regression."""
    seed: int = 0
    balanced: bool = False
    """Whether every class gets the same total weight."""
    criterion: str = "accuracy"
    """The metric that a threshold other than the classifier's own must improve."""

    @property
    def single(self) -> bool:
        """Whether a score is one number per row."""
        return self.task in ("binary", "regression")

    @property
    def outputs(self) -> int:
        """Numbers per row that a score has."""
        return 1 if self.single else self.classes


@dataclass(frozen=True, eq=False)
class FittedProbe:
    """A fitted classifier: one score per row, or one per row and class."""

    score: Callable[[Any], Tensor]
    link: Link
    """What scores are: logits (also log-densities), probabilities, margins, or target values."""
    parameters: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the fit: C, gradient norm, iterations, losses."""
    exclusive: bool = True
    """Whether a row has exactly one class; False for multilabel."""
    predict_proba: Callable[[Any], Tensor] | None = None
    """Probabilities of rows, if they don't follow from the scores."""
    cut: float | None = None
    """The score above which a row is positive; None: 0, or 0.5 for probabilities; NaN: it has
    none."""

    @property
    def own_cut(self) -> float:
        """The classifier's own threshold; NaN if it only orders the rows."""
        return self.cut if self.cut is not None else 0.5 if self.link == "probability" else 0.0

    def scores(self, x: Any) -> Float[Tensor, " n"] | Float[Tensor, "n cls"]:
        """Higher for class 1 (binary), for each class, or the value itself (regression)."""
        if isinstance(x, RowBlocks):
            return torch.cat([self.scores(block) for _, block in x])
        return self.score(x).double()

    def probabilities(self, x: Any, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."] | None:
        """The probabilities of `x` given its scores, None if the classifier has none."""
        if self.predict_proba is not None:
            return self.predict_proba(x).double()
        if self.link == "probability":
            return scores
        if self.link != "logit":
            return None
        one = scores.ndim == 1 or not self.exclusive
        return torch.sigmoid(scores) if one else torch.softmax(scores, -1)


FitFunction = Callable[[Any, Tensor, Any, Tensor, FitSettings], FittedProbe]
"""(x_train, y_train, x_val, y_val, settings) -> a classifier fitted on train, tuned on val."""
FitSplitsFunction = Callable[[Any, Tensor, Sequence[Split], FitSettings], list[FittedProbe]]
"""(x, y, splits, settings) -> one fit per split, all at once; x may be larger than memory."""


def linear_probe(
    weights: Float[Tensor, "out d"],
    bias: Float[Tensor, " out"],
    settings: FitSettings,
    link: Link,
    notes: Mapping[str, Any],
) -> FittedProbe:
    """A fitted linear map from features to scores."""

    def score(x: Tensor) -> Tensor:
        parts = [block @ weights.T for _, block in as_row_blocks(x, dtype=weights.dtype)]
        return squeeze_outputs(torch.cat(parts) + bias, settings)

    size = weights.numel() + bias.numel()
    return FittedProbe(score, link, size, dict(notes), settings.task != "multilabel")


def squeeze_outputs(scores: Float[Tensor, "n out"], settings: FitSettings) -> Float[Tensor, "..."]:
    """Scores without their last axis if the task has one number per row."""
    return scores[:, 0] if settings.single else scores


def split_masks(splits: Sequence[Split], part: str, n: int) -> Bool[Tensor, "fold n"]:
    """Which rows belong to a part of each split."""
    made = torch.zeros(len(splits), n, dtype=torch.bool)
    for row, split in zip(made, splits, strict=True):
        row[torch.as_tensor(getattr(split, part))] = True
    return made


def matrix_shape(x: Shaped[Tensor, "n d"] | RowBlocks) -> tuple[int, int]:
    """Number of rows and columns."""
    return (x.n, x.d) if isinstance(x, RowBlocks) else (x.shape[0], x.shape[1])


@dataclass(frozen=True, eq=False)
class ProbeOutputs:
    """Truth and outputs on the test rows, from which every metric is computed."""

    task: Task
    truth: NDArray[Any]
    decisions: NDArray[Any]
    """Values for regression."""
    ranks: NDArray[Any]
    """Scores that can be compared between rows."""
    probabilities: NDArray[Any] | None = None
    """If the classifier has them."""
    tuned_decisions: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Decisions at the threshold that is best for one metric, by metric."""

    def metrics(self, rows: NDArray[Any] | slice = slice(None)) -> dict[str, float]:
        """Every metric of the task on these test rows."""
        truth = self.truth[rows]
        found = evaluate(truth, self.decisions[rows], self.ranks[rows], task=self.task)
        if "ece" in found:
            found["ece"] = (
                np.nan if self.probabilities is None else ece(self.probabilities[rows], truth)
            )
        for name, decisions in self.tuned_decisions.items():
            found[f"{name}_ref"] = METRICS[name](truth, decisions[rows])
        return found

    def answer_scores(self) -> NDArray[np.float64]:
        """How sure the classifier is of each decision: its probability, or else its score.

        The value itself for regression; NaN for multilabel, which has no single answer.
        """
        scores = self.ranks if self.probabilities is None else self.probabilities
        if self.task == "multilabel":
            return np.full(len(self.truth), np.nan)
        if self.task == "regression":
            return np.asarray(self.decisions, dtype=np.float64)
        if scores.ndim == 2:
            return scores[np.arange(len(scores)), self.decisions.astype(int)].astype(np.float64)
        other = -scores if self.probabilities is None else 1 - scores
        return np.where(self.decisions == 1, scores, other).astype(np.float64)

    def value(self, name: str) -> float:
        """One metric; NaN if the classifier doesn't give what it needs."""
        return self._measure(name)(np.arange(len(self.truth)))

    def _measure(self, name: str) -> Callable[[NDArray[Any]], float]:
        """One metric of some of the rows, by their place."""
        base = name.removesuffix("_ref")
        metric, given = METRICS[base], self.decisions
        if name != base:
            given = self.tuned_decisions[base]
        elif metric.needs == "score":
            scores = self.probabilities if base == "ece" else self.ranks
            if scores is None:
                return lambda rows: np.nan
            given = scores
        return lambda rows: metric(self.truth[rows], given[rows])

    def row_scores(self, blocks: NDArray[Any], count: int, main: str) -> RowScores:
        """What the test rows tell about the main metric, by blocks of rows."""
        from cutaway.measure.jackknife import row_scores

        measure = self._measure(main)
        return row_scores(
            main, self.truth, measure, blocks, count, probabilities=self.probabilities
        )

    def all_row_scores(self, blocks: NDArray[Any], count: int) -> dict[str, RowScores]:
        """What the test rows tell about every metric."""
        from cutaway.measure.jackknife import row_scores

        some: dict[bytes, dict[str, float]] = {}

        def value(name: str) -> Callable[[NDArray[Any]], float]:
            def of(rows: NDArray[Any]) -> float:
                # Every metric needs the same subsets of rows: evaluate all metrics once per subset.
                key = rows.tobytes()
                if key not in some:
                    some[key] = self.metrics(rows)
                return some[key][name]

            return of

        return {
            name: row_scores(
                name, self.truth, value(name), blocks, count, probabilities=self.probabilities
            )
            for name in self.metrics()
        }


def binary_relevance_splits(make: FitSplitsFunction) -> FitSplitsFunction:
    """For multilabel: one binary classifier per label."""

    def many(
        x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], settings: FitSettings
    ) -> list[FittedProbe]:
        if settings.task != "multilabel":
            return make(x, y, splits, settings)
        one = FitSettings("binary", 2, settings.seed, settings.balanced)
        each = [make(x, y[:, k], splits, one) for k in range(settings.classes)]
        return [combine_labels(list(group)) for group in zip(*each, strict=True)]

    return many


def combine_labels(fits: Sequence[FittedProbe]) -> FittedProbe:
    """Binary classifiers as one classifier that scores every label."""

    def predict_proba(x: Tensor) -> Tensor:
        every = [fit.probabilities(x, fit.scores(x)) for fit in fits]
        return torch.stack([one for one in every if one is not None], 1)

    return FittedProbe(
        lambda x: torch.stack([fit.scores(x) for fit in fits], 1),
        fits[0].link,
        sum(fit.parameters for fit in fits),
        {"each": [dict(fit.notes) for fit in fits]},
        exclusive=False,
        predict_proba=predict_proba if all(fit.predict_proba is not None for fit in fits) else None,
        cut=fits[0].cut,
    )


def binary_relevance(make: FitFunction) -> FitFunction:
    """For multilabel: one binary classifier per label."""

    def every(
        x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, settings: FitSettings
    ) -> FittedProbe:
        if settings.task != "multilabel":
            return make(x_train, y_train, x_val, y_val, settings)
        one = FitSettings("binary", 2, settings.seed, settings.balanced)
        return combine_labels(
            [make(x_train, y_train[:, k], x_val, y_val[:, k], one) for k in range(settings.classes)]
        )

    return every
