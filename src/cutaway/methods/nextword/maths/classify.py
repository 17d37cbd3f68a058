"""Logistic regression with cross-validated strength, for every split of one feature matrix.

As the reference: 5 stratified folds of the training rows choose C, then a refit on all of them;
one against the rest where there are several classes. The folds of all splits and all C are one
batch of problems for `logistic_path`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.measure.splits import repeat_rng
from cutaway.measure.strata import shuffle
from cutaway.solvers import LogisticPath, RowBlocks, logistic_path, path_losses

IntArray = NDArray[np.int64]
# The reference's strengths: fewer where there are many rows.
C_GRID = tuple(10.0**power for power in range(-6, 4))
C_GRID_LARGE = tuple(10.0**power for power in range(-3, 3))
LARGE_DATA_ROWS = 10_000


@dataclass(frozen=True)
class ClassifierSettings:
    """How classifiers are fitted."""

    classes: int
    folds: int = 5
    seed: int = 0
    multinomial: bool = False
    """One softmax over the classes instead of one against the rest."""
    standardise: bool = True
    """Features of unit deviation, per fold; the reference takes them as they are."""
    tol: float = 1e-4
    most: int = 1000
    gap: float | None = 1e-3
    """A weak strength that was left halfway would be chosen for its haste: see `minimise`."""
    directions: int | None = None
    """Rows looked at to make the problem round; fewer need less memory."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """One classifier: a row of weights per class, a single one for two classes."""

    weights: Float[Tensor, "out d"]
    intercept: Float[Tensor, " out"]
    c: float
    converged: bool
    gradient: float
    multinomial: bool = False

    def logits(self, x: Shaped[Tensor, "n d"]) -> Float[Tensor, "n out"]:
        """The scores of some rows."""
        return x.to(self.weights) @ self.weights.T + self.intercept

    def probabilities(self, logits: Float[Tensor, "n out"]) -> Float[Tensor, "n cls"]:
        """What the scores say of each class; one against the rest is made to add up."""
        if logits.shape[1] == 1:
            p = torch.sigmoid(logits[:, 0])
            return torch.stack([1 - p, p], dim=1)
        if self.multinomial:
            return torch.softmax(logits, dim=1)
        p = torch.sigmoid(logits).clamp_min(1e-300)
        return p / p.sum(dim=1, keepdim=True)


def c_grid_for(rows: int) -> tuple[float, ...]:
    """The reference's C for so many training rows."""
    return C_GRID if rows < LARGE_DATA_ROWS else C_GRID_LARGE


def fit_logistic_cv(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: IntArray,
    trains: Sequence[IntArray],
    plan: ClassifierSettings,
) -> list[LinearClassifier]:
    """One classifier per set of training rows, its C chosen by cross-validated log-loss."""
    strengths = c_grid_for(max(map(len, trains)))
    aims = _class_targets(y, plan)
    learn, held = _cv_masks(y, trains, plan)
    path = _solve_path(x, aims, learn, strengths, plan)
    losses = path_losses(path, x, aims, folds=held).view(len(trains), -1, len(strengths)).mean(1)
    chosen = [strengths[i] for i in losses.argmin(dim=1).tolist()]
    del path
    few = sorted(set(chosen))
    whole = torch.stack([_row_mask(rows, len(y)) for rows in trains])
    final = _solve_path(x, aims, whole, few, plan)
    return [_classifier_at(final, split, few.index(c), plan) for split, c in enumerate(chosen)]


def _solve_path(
    x: Tensor | RowBlocks,
    aims: Tensor,
    folds: Tensor,
    strengths: Sequence[float],
    plan: ClassifierSettings,
) -> LogisticPath:
    return logistic_path(
        x,
        aims,
        strengths=strengths,
        folds=folds,
        classes=plan.classes if aims.ndim == 1 else 2,
        standardise=plan.standardise,
        tol=plan.tol,
        most=plan.most,
        directions=plan.directions,
        gap=plan.gap,
    )


def _classifier_at(
    path: LogisticPath, split: int, c: int, plan: ClassifierSettings
) -> LinearClassifier:
    return LinearClassifier(
        path.weights[split, c],
        path.intercept[split, c],
        path.strengths[c],
        bool(path.converged[split, c]),
        float(path.gradient[split, c]),
        plan.multinomial,
    )


def _class_targets(
    y: IntArray, plan: ClassifierSettings
) -> Shaped[Tensor, " n"] | Shaped[Tensor, "n cls"]:
    """Class numbers; 0/1 per class for one against the rest of several."""
    numbers = torch.from_numpy(np.asarray(y, dtype=np.int64))
    if plan.classes == 2 or plan.multinomial:
        return numbers
    return torch.nn.functional.one_hot(numbers, plan.classes)


def _cv_masks(
    y: IntArray, trains: Sequence[IntArray], plan: ClassifierSettings
) -> tuple[Bool[Tensor, "fold n"], Bool[Tensor, "fold n"]]:
    """Rows to learn from and rows held out, fold by fold, split after split."""
    learn, held = [], []
    for number, rows in enumerate(trains):
        for part in stratified_folds(y, rows, plan.folds, seed=plan.seed, split=number):
            out = _row_mask(part, len(y))
            held.append(out)
            learn.append(_row_mask(rows, len(y)) & ~out)
    return torch.stack(learn), torch.stack(held)


def stratified_folds(
    y: IntArray, rows: IntArray, folds: int, *, seed: int, split: int
) -> list[IntArray]:
    """The held-out rows of each fold: every class dealt out evenly; BadData for too few rows."""
    kinds, counts = np.unique(y[rows], return_counts=True)
    if len(kinds) < 2 or counts.min() < folds:
        raise BadData(
            f"Cross-validation with {folds} folds needs two classes and at least {folds} training "
            f"rows of each, got {dict(zip(kinds.tolist(), counts.tolist(), strict=True))!r} "
            "(class number: rows). Give more rows or fewer --folds."
        )
    mixed = shuffle(np.asarray(rows, dtype=np.int64), repeat_rng(seed, 1000 + split))
    ordered = mixed[np.argsort(y[mixed], kind="stable")]
    return [np.sort(ordered[k::folds]) for k in range(folds)]


def _row_mask(rows: Int[Tensor, " _"] | IntArray, n: int) -> Bool[Tensor, " n"]:
    marks = torch.zeros(n, dtype=torch.bool)
    marks[torch.as_tensor(rows)] = True
    return marks
