"""Targets, row weights and losses of logistic regression."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cutaway.core.errors import BadData, Mismatch
from cutaway.solvers.rows import RowBlocks


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets and normalised row weights of every problem."""

    y: Shaped[Tensor, "target n"]
    weight: Float[Tensor, "group n"]
    total: Float[Tensor, " group"]
    """The sums of the weights before normalisation."""
    outputs: int
    """Columns per problem: 1, or the number of classes for softmax."""
    labels: int
    """Problems per fold and C: 1, or the number of labels."""
    groups_by_label: bool


def fold_weights(folds: Tensor | None, rows: RowBlocks) -> Tensor:
    """One weight per fold and row; all ones without folds."""
    if folds is None:
        folds = torch.ones(1, rows.n)
    if folds.shape[1] != rows.n:
        raise Mismatch(f"Folds have {folds.shape[1]} rows, the features {rows.n}.")
    if bool((folds.sum(1) <= 0).any()):
        raise BadData("A fold has no training row: give more rows, or fewer folds.")
    return folds.to(rows.device, rows.dtype)


def targets(
    y: Tensor, folds: Tensor, rows: RowBlocks, classes: int, balanced: bool, *, check: bool = True
) -> Targets:
    """Targets and weights of every problem; BadData for labels that aren't class numbers."""
    if len(y) != rows.n:
        raise Mismatch(f"{len(y)} labels for {rows.n} rows of features.")
    many = y.ndim == 2
    numbers = (y if many else y[:, None]).T.long()
    kinds = 2 if many else classes
    if int(numbers.min()) < 0 or int(numbers.max()) >= kinds:
        raise BadData(
            f"Labels must be class numbers 0 to {kinds - 1}, got {int(numbers.min())} to "
            f"{int(numbers.max())}."
        )
    if check and kinds == 2 and not many:
        _check_two_classes(folds, numbers[0])
    weight = folds
    if balanced:
        each = [_balanced_weights(folds, row, kinds) for row in numbers]
        weight = torch.stack(each, 1).flatten(0, 1)
    total = weight.sum(1)
    return Targets(
        numbers if kinds > 2 else numbers.to(rows.dtype),
        weight / total[:, None],
        total,
        outputs=classes if not many and classes > 2 else 1,
        labels=len(numbers),
        groups_by_label=balanced,
    )


def _balanced_weights(folds: Tensor, row: Tensor, kinds: int) -> Tensor:
    """Row weights that give every class the same total weight in each fold."""
    marks = torch.nn.functional.one_hot(row, kinds).to(folds)
    have = (folds @ marks).clamp_min(1.0)
    share = folds.sum(1, keepdim=True) / (kinds * have)
    return folds * (share @ marks.T)


def _check_two_classes(folds: Tensor, row: Tensor) -> None:
    positive = folds @ row.to(folds)
    lone = (positive <= 0) | (positive >= folds.sum(1))
    if bool(lone.any()):
        raise BadData(
            f"{int(lone.sum())} of {len(folds)} folds have training rows of one class only; "
            "give more rows, or fewer folds."
        )


def binary_loss(z: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted log-loss of 0/1 targets: loss, residuals and curvature."""
    z = z[:, 0]
    p = torch.sigmoid(z)
    # log(1 + e^z) without overflow.
    loss = torch.log1p(torch.exp(-z.abs())).add_(z.clamp_min(0.0)).addcmul_(y, z, value=-1.0)
    residual = (p - y).mul_(weight)
    curvature = torch.addcmul(p, p, p, value=-1.0).mul_(weight)
    return _sum(loss.mul_(weight)), residual[:, None], _sum(curvature)[:, None]


def softmax_loss(z: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted cross-entropy of class numbers: loss, residuals and curvature."""
    level = torch.logsumexp(z, 1, keepdim=True)
    p = torch.exp(z - level)
    index = y[:, None].expand(len(z), 1, -1)
    loss = (level - z.gather(1, index))[:, 0].mul_(weight)
    curvature = torch.addcmul(p, p, p, value=-1.0).mul_(weight[:, None])
    p.scatter_add_(1, index, torch.full_like(index, -1, dtype=p.dtype))
    return _sum(loss), p.mul_(weight[:, None]), _sum(curvature)


def _sum(values: Tensor) -> Tensor:
    return values.sum(-1, dtype=torch.float64)
