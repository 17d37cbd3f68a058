"""Ridge regression for all alphas, folds and targets at once, with exact leave-one-out errors.

The objective is scikit-learn's Ridge: sum of squared residuals + alpha * ||w||^2, the intercept not
penalised. One eigendecomposition per fold, of the d x d scatter or of the n x n Gram matrix,
whichever is smaller, serves all alphas and targets. The leave-one-out error of a row is its
residual / (1 - leverage), so it needs no second fit (Allen 1974); features are scaled by all rows
of the fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.solvers.rows import (
    RowBlocks,
    as_row_blocks,
    fold_scatters,
    folds_by_shape,
    group_moments,
)


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The weights of every (fold, alpha), for unscaled features, and their leave-one-out errors."""

    weights: Float[Tensor, "fold alpha target d"]
    intercept: Float[Tensor, "fold alpha target"]
    alphas: tuple[float, ...]
    loo: Float[Tensor, "fold alpha target"]
    """Mean squared leave-one-out error."""

    def best(self) -> Int[Tensor, " fold"]:
        """The index of the alpha with the lowest leave-one-out error, per fold."""
        return self.loo.sum(-1).argmin(1)


@dataclass(frozen=True, eq=False)
class _RidgeFold:
    """One fold: mean, scale, eigenvectors, and its targets in their coordinates."""

    mean: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    target_mean: Float[Tensor, " target"]
    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]
    along: Float[Tensor, "r target"]
    """V^T X^T y."""
    count: int

    def coefficients(self, alphas: Tensor) -> Float[Tensor, "alpha r target"]:
        """The weights in the coordinates of the eigenvectors."""
        return self.along / (self.values + alphas[:, None])[:, :, None]

    def squared_errors(self, x: Tensor, y: Tensor, alphas: Tensor) -> Tensor:
        """Sums of squared leave-one-out errors of some rows of the fold."""
        inside = ((x - self.mean) / self.scale) @ self.vectors
        predicted = torch.einsum("nr,art->ant", inside, self.coefficients(alphas))
        predicted = predicted + self.target_mean
        leverage = inside.square() @ (1.0 / (self.values + alphas[:, None])).T + 1.0 / self.count
        errors = (y - predicted) / (1.0 - leverage).clamp_min(1e-10).T[:, :, None]
        return errors.square().sum(1)


def ridge_path(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Shaped[Tensor, "n target"],
    *,
    alphas: Sequence[float],
    folds: Shaped[Tensor, "fold n"] | None = None,
    standardise: bool = True,
) -> RidgePath:
    """Fit every fold and alpha; `folds` are masks of the training rows (default: one, all rows)."""
    rows = as_row_blocks(x)
    if len(y) != rows.n:
        raise Mismatch(f"{len(y)} targets for {rows.n} rows of features.")
    if not alphas or min(alphas) <= 0:
        raise BadSpec(f"Every alpha must be above 0, got {list(alphas)!r}.")
    masks = torch.ones(1, rows.n, dtype=torch.bool) if folds is None else folds.bool()
    if int(masks.sum(1).min()) < 2:
        raise BadData("Ridge regression needs at least two training rows in each fold.")
    targets = y.to(rows.device, torch.float64)
    level = torch.tensor(list(alphas), dtype=torch.float64, device=rows.device)
    parts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for numbers, tall in folds_by_shape(masks.cpu(), rows.d):
        made = _fit_folds(rows, targets, masks[numbers], level, standardise, tall=tall)
        parts |= dict(zip(numbers, made, strict=True))
    in_order = (parts[k] for k in range(len(masks)))
    weights, intercept, loo = (torch.stack(values) for values in zip(*in_order, strict=True))
    return RidgePath(weights, intercept, tuple(alphas), loo)


def _fit_folds(
    rows: RowBlocks, y: Tensor, masks: Tensor, alphas: Tensor, standardise: bool, *, tall: bool
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Weights, intercepts and leave-one-out errors of some folds."""
    moments = group_moments(rows, masks, scatter=tall)
    scaled = rows.standardised(moments.mean, moments.deviation)
    if tall:
        assert moments.scatter is not None
        total = moments.scatter / torch.outer(moments.deviation, moments.deviation)
        grams = fold_scatters(scaled, masks, total=total)
        made = _folds_from_scatter(scaled, y, masks, grams, standardise, moments.deviation)
    else:
        made = [
            _fold_from_gram(scaled, y, m.to(rows.device), standardise, moments.deviation)
            for m in masks
        ]
    loo = _leave_one_out(made, scaled, y, masks.to(rows.device), alphas)
    return [
        (*_unscaled_weights(fold, alphas, moments.mean, moments.deviation), errors)
        for fold, errors in zip(made, loo, strict=True)
    ]


def _leave_one_out(
    made: list[_RidgeFold], scaled: RowBlocks, y: Tensor, masks: Tensor, alphas: Tensor
) -> list[Tensor]:
    total = [torch.zeros(len(alphas), y.shape[1]).to(y) for _ in made]
    for index, block in scaled:
        for errors, fold, mask in zip(total, made, masks[:, index], strict=True):
            errors += fold.squared_errors(block[mask].double(), y[index][mask], alphas)
    return [errors / fold.count for errors, fold in zip(total, made, strict=True)]


def _folds_from_scatter(
    scaled: RowBlocks, y: Tensor, masks: Tensor, grams: Tensor, standardise: bool, deviation: Tensor
) -> list[_RidgeFold]:
    """Folds with more rows than features: eigenvectors of the scatter matrix."""
    weight = masks.to(scaled.device, torch.float64)
    count = weight.sum(1)
    first = torch.zeros(len(masks), scaled.d, dtype=torch.float64, device=scaled.device)
    cross = first.new_zeros(len(masks), y.shape[1], scaled.d)
    for index, block in scaled:
        double = block.double()
        first += weight[:, index] @ double
        both = weight[:, None, index] * y[index].T
        cross += (both.flatten(0, 1) @ double).view_as(cross)
    mean = first / count[:, None]
    target_mean = (weight @ y) / count[:, None]
    made = []
    for k in range(len(masks)):
        scatter = torch.addr(grams[k], mean[k], mean[k], alpha=-float(count[k]))
        scale = _feature_scale(scatter.diagonal() / count[k], standardise, deviation)
        values, vectors = torch.linalg.eigh(scatter / torch.outer(scale, scale))
        centred = (cross[k] - torch.outer(target_mean[k] * count[k], mean[k])) / scale
        along, values = vectors.T @ centred.T, values.clamp_min(0.0)
        fold = _RidgeFold(mean[k], scale, target_mean[k], values, vectors, along, int(count[k]))
        made.append(fold)
    return made


def _fold_from_gram(
    scaled: RowBlocks, y: Tensor, masks: Tensor, standardise: bool, deviation: Tensor
) -> _RidgeFold:
    """A fold with fewer rows than features: eigenvectors of the Gram matrix."""
    x = scaled.take(masks.nonzero()[:, 0].cpu()).double()
    own = y[masks]
    mean, target_mean = x.mean(0), own.mean(0)
    scale = _feature_scale(x.var(0, correction=0), standardise, deviation)
    centred = (x - mean) / scale
    values, left = torch.linalg.eigh(centred @ centred.T)
    # Eigenvalues that are rounding errors would be inflated by 1 / sqrt(value).
    used = values > 1e-12 * values[-1].clamp_min(1e-300)
    vectors = centred.T @ (left[:, used] / values[used].sqrt())
    along = values[used].sqrt()[:, None] * (left[:, used].T @ (own - target_mean))
    return _RidgeFold(mean, scale, target_mean, values[used], vectors, along, len(own))


def _feature_scale(variance: Tensor, standardise: bool, deviation: Tensor) -> Tensor:
    """The divisor of features that are in units of the standard deviation of all rows."""
    if not standardise:
        return 1.0 / deviation
    return torch.where(variance < 1e-12, torch.ones_like(variance), variance.clamp_min(0.0).sqrt())


def _unscaled_weights(
    fold: _RidgeFold, alphas: Tensor, mean: Tensor, deviation: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights and intercepts for unscaled features."""
    inner = (fold.vectors @ fold.coefficients(alphas)).transpose(1, 2) / fold.scale
    weights = inner / deviation
    return weights, fold.target_mean - inner @ fold.mean - weights @ mean
