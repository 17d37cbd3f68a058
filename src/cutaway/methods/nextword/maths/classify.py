"""Logistic regression with C chosen by cross-validation, for all splits of one feature matrix.

As in the reference: 5 stratified folds of the training rows choose C, then a refit on all of them;
one-vs-rest for more than two classes. The folds of all splits and all C are solved as one batch by
`logistic_path`.
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
from cutaway.solvers.logistic import LogisticPath, logistic_path, path_losses
from cutaway.solvers.rows import RowBlocks, as_row_blocks

IntArray = NDArray[np.int64]
# The reference's values of C: fewer for large data.
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
    """One softmax over the classes instead of one-vs-rest."""
    standardise: bool = True
    """Scale features to unit variance, per fold; the reference doesn't."""
    tol: float = 1e-4
    max_iter: int = 1000
    gap: float | None = 1e-3
    """The optimality gap that a fit must reach; without it, a large C that stopped early could be
    chosen because it stopped early. See `minimise`."""
    directions: int | None = None
    """Rows used for the preconditioner of very wide features; fewer need less memory."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A fitted classifier: one row of weights per class, a single row for two classes."""

    weights: Float[Tensor, "out d"]
    intercept: Float[Tensor, " out"]
    c: float
    converged: bool
    gradient: float
    multinomial: bool = False
    held_out: Float[Tensor, "train out"] | None = None
    """The logits of the training rows, each from the fold that held it out, at this C."""

    def logits(self, x: Shaped[Tensor, "n d"]) -> Float[Tensor, "n out"]:
        """The decision function."""
        return x.to(self.weights) @ self.weights.T + self.intercept

    def probabilities(self, logits: Float[Tensor, "n out"]) -> Float[Tensor, "n cls"]:
        """Class probabilities; those of one-vs-rest are normalised."""
        if logits.shape[1] == 1:
            p = torch.sigmoid(logits[:, 0])
            return torch.stack([1 - p, p], dim=1)
        if self.multinomial:
            return torch.softmax(logits, dim=1)
        p = torch.sigmoid(logits).clamp_min(1e-300)
        return p / p.sum(dim=1, keepdim=True)


def c_grid_for(rows: int) -> tuple[float, ...]:
    """The values of C to choose from for this many training rows."""
    return C_GRID if rows < LARGE_DATA_ROWS else C_GRID_LARGE


def fit_logistic_cv(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: IntArray,
    trains: Sequence[IntArray],
    settings: ClassifierSettings,
) -> list[LinearClassifier]:
    """One classifier per set of training rows, C chosen by cross-validated log-loss."""
    strengths = c_grid_for(max(map(len, trains)))
    targets = _class_targets(y, settings)
    learn, held_out = _cv_masks(y, trains, settings)
    path = _solve_path(x, targets, learn, strengths, settings)
    losses = path_losses(path, x, targets, folds=held_out)
    best = losses.view(len(trains), -1, len(strengths)).mean(1).argmin(dim=1)
    chosen = [strengths[i] for i in best.tolist()]
    out_of_fold = _held_out_logits(path, x, best, held_out)
    del path
    distinct = sorted(set(chosen))
    masks = torch.stack([_row_mask(rows, len(y)) for rows in trains])
    refit = _solve_path(x, targets, masks, distinct, settings)
    return [
        _classifier_at(refit, split, distinct.index(c), out_of_fold[split, rows], settings)
        for split, (c, rows) in enumerate(zip(chosen, trains, strict=True))
    ]


def _held_out_logits(
    path: LogisticPath,
    x: Tensor | RowBlocks,
    best: Int[Tensor, " split"],
    held_out: Bool[Tensor, "fold n"],
) -> Float[Tensor, "split n out"]:
    """The logits of each training row from the fold that holds it out, in one pass over the rows.

    `best` is the place of each split's C. Rows that no fold holds out (test rows) have zeros.
    """
    splits, (folds, n) = len(best), held_out.shape
    fold = torch.arange(folds)
    chosen = best.cpu().repeat_interleave(folds // splits)
    weights, intercept = path.weights[fold, chosen], path.intercept[fold, chosen]
    out = weights.shape[1]
    made = torch.empty(splits, n, out, dtype=torch.float64)
    for index, block in as_row_blocks(x):
        flat = (block.to(weights) @ weights.flatten(0, 1).T + intercept.flatten()).double().cpu()
        own = flat.view(-1, splits, folds // splits, out)
        here = held_out[:, index].T.reshape(len(own), splits, -1, 1)
        made[:, index] = (own * here).sum(dim=2).transpose(0, 1)
    return made


def _solve_path(
    x: Tensor | RowBlocks,
    targets: Tensor,
    folds: Tensor,
    strengths: Sequence[float],
    settings: ClassifierSettings,
) -> LogisticPath:
    return logistic_path(
        x, targets, strengths=strengths, folds=folds,
        classes=settings.classes if targets.ndim == 1 else 2, standardise=settings.standardise,
        tol=settings.tol, max_iter=settings.max_iter, directions=settings.directions,
        gap=settings.gap,
    )  # fmt: skip


def _classifier_at(
    path: LogisticPath, split: int, c: int, held_out: Tensor, settings: ClassifierSettings
) -> LinearClassifier:
    return LinearClassifier(
        path.weights[split, c],
        path.intercept[split, c],
        path.strengths[c],
        bool(path.converged[split, c]),
        float(path.gradient[split, c]),
        settings.multinomial,
        held_out,
    )


def _class_targets(
    y: IntArray, settings: ClassifierSettings
) -> Shaped[Tensor, " n"] | Shaped[Tensor, "n cls"]:
    """Class numbers; 0/1 per class for one-vs-rest."""
    numbers = torch.from_numpy(np.asarray(y, dtype=np.int64))
    if settings.classes == 2 or settings.multinomial:
        return numbers
    return torch.nn.functional.one_hot(numbers, settings.classes)


def _cv_masks(
    y: IntArray, trains: Sequence[IntArray], settings: ClassifierSettings
) -> tuple[Bool[Tensor, "fold n"], Bool[Tensor, "fold n"]]:
    """Masks of training and held-out rows: all folds of the first split, then of the next."""
    learn, held_out = [], []
    for number, rows in enumerate(trains):
        for fold in stratified_folds(y, rows, settings.folds, seed=settings.seed, split=number):
            out = _row_mask(fold, len(y))
            held_out.append(out)
            learn.append(_row_mask(rows, len(y)) & ~out)
    return torch.stack(learn), torch.stack(held_out)


def stratified_folds(
    y: IntArray,
    rows: IntArray,
    folds: int,
    *,
    seed: int,
    split: int,
    names: Sequence[str] = (),
) -> list[IntArray]:
    """The held-out rows of each stratified fold; BadData for too few rows of a class."""
    classes, counts = np.unique(y[rows], return_counts=True)
    if len(classes) < 2 or counts.min() < folds:
        shown = [names[k] if k < len(names) else str(k) for k in classes.tolist()]
        found = ", ".join(f"{name!r}: {n}" for name, n in zip(shown, counts.tolist(), strict=True))
        raise BadData(
            f"Cross-validation with {folds} folds needs two classes and at least {folds} training "
            f"rows of each, got {found or 'none'}. Give more rows, fewer --folds, or drop or merge "
            "the class."
        )
    mixed = shuffle(np.asarray(rows, dtype=np.int64), repeat_rng(seed, 1000 + split))
    ordered = mixed[np.argsort(y[mixed], kind="stable")]
    return [np.sort(ordered[k::folds]) for k in range(folds)]


def _row_mask(rows: Int[Tensor, " _"] | IntArray, n: int) -> Bool[Tensor, " n"]:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[torch.as_tensor(rows)] = True
    return mask
