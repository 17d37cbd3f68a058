"""Linear discriminant analysis of all folds at once, with or without shrinkage.

Without shrinkage it is scikit-learn's default LinearDiscriminantAnalysis: the pseudo-inverse of the
within-class covariance of scaled features, with eigenvalues below 1e-8 dropped. With fewer rows
than features the learning curve dips at n = d. Shrinkage is towards the features' own within-class
variances, by a given amount or by the estimate of Ledoit and Wolf (2004) from the pooled rows;
because features are scaled first, outlier dimensions don't determine the amount.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.solvers.rows import (
    GroupMoments,
    RowBlocks,
    as_row_blocks,
    fold_scatters,
    folds_by_shape,
    group_moments,
)

Shrinkage = float | Literal["auto"] | None
# scikit-learn's tolerance for singular values, squared because these are eigenvalues.
MIN_EIGENVALUE = 1e-8


@dataclass(frozen=True, eq=False)
class Discriminant:
    """Weights and intercepts per fold and class, for unscaled features."""

    weights: Float[Tensor, "fold cls d"]
    """One row (class 1 against class 0) for two classes."""
    intercept: Float[Tensor, "fold cls"]
    shrinkage: Float[Tensor, " fold"]
    rank: Int[Tensor, " fold"]


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Counts, means and variances of each class in each fold."""

    count: Float[Tensor, "fold cls"]
    mean: Float[Tensor, "fold cls d"]
    variance: Float[Tensor, "fold cls d"]
    overall: GroupMoments


def class_moments(
    rows: RowBlocks,
    y: Int[Tensor, " n"],
    folds: Shaped[Tensor, "fold n"],
    classes: int,
    *,
    scatter: bool,
) -> ClassMoments:
    """The moments of every class in every fold; BadData for a fold without rows of a class."""
    masks = torch.nn.functional.one_hot(y.to(folds.device).long(), classes).T.bool()
    both = folds.bool()[:, None] & masks
    counts = both.sum(-1)
    if int(counts.min()) == 0:
        fold, label = (counts == 0).nonzero()[0].tolist()
        raise BadData(
            f"Split {fold} has no training row of class {label}; give more rows, or use "
            "'logistic', which doesn't need all classes."
        )
    moments = group_moments(rows, both.flatten(0, 1), scatter=scatter)
    shape = (len(folds), classes, rows.d)
    count, mean = moments.count.view(shape[:2]), moments.group_mean.view(shape)
    return ClassMoments(count, mean, moments.group_variance.view(shape), moments)


def discriminant(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Int[Tensor, " n"],
    *,
    classes: int,
    folds: Shaped[Tensor, "fold n"] | None = None,
    shrinkage: Shrinkage = None,
) -> Discriminant:
    """The linear discriminant of each fold; `folds` are masks of the training rows."""
    if not (shrinkage is None or shrinkage == "auto" or 0.0 <= float(shrinkage) <= 1.0):
        raise BadSpec(f"shrinkage must be None, 'auto' or from 0 to 1, got {shrinkage!r}.")
    rows = as_row_blocks(x)
    masks = torch.ones(1, rows.n, dtype=torch.bool) if folds is None else folds.bool().cpu()
    parts: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
    for numbers, tall in folds_by_shape(masks, rows.d, each=classes * rows.n):
        made = _fit_folds(rows, y, masks[numbers], classes, shrinkage, tall=tall)
        parts |= dict(zip(numbers, made, strict=True))
    in_order = (parts[k] for k in range(len(masks)))
    weights, intercept, share, rank = (torch.stack(v) for v in zip(*in_order, strict=True))
    return Discriminant(weights, intercept, share, rank)


@dataclass(frozen=True, eq=False)
class _DiscriminantFold:
    """One fold, centred, in features of unit within-class standard deviation."""

    scatter: Float[Tensor, "r r"]
    """Within-class scatter, in the coordinates of `basis` if there is one."""
    means: Float[Tensor, "cls r"]
    count: Float[Tensor, " cls"]
    fourth: Float[Tensor, ""]
    """Sum over rows of |x - class mean|^4."""
    basis: Float[Tensor, "d r"] | None = None
    """A basis of the span of the rows, if there are fewer rows than features."""


def _fit_folds(
    rows: RowBlocks, y: Tensor, folds: Tensor, classes: int, shrinkage: Shrinkage, *, tall: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    moments = class_moments(rows, y, folds, classes, scatter=tall)
    centre, unit = moments.overall.mean, moments.overall.deviation
    scaled = rows.standardised(centre, unit)
    deviation = _within_class_std(moments, unit)
    make = _folds_from_scatter if tall else _folds_from_gram
    for k, fold in enumerate(make(scaled, y, folds, moments, deviation, shrinkage == "auto")):
        share = _shrinkage_amount(fold, rows.d, shrinkage)
        along, rank = _inverse_times_means(fold, rows.d, share, shrinkage is None)
        weights = along if fold.basis is None else along @ fold.basis.T
        mean = (fold.count / fold.count.sum()) @ moments.mean[k]
        raw = weights / (deviation[k] * unit)
        offset = -0.5 * (along * fold.means).sum(1) + torch.log(fold.count / fold.count.sum())
        offset = offset - raw @ mean
        if classes == 2:
            raw, offset = raw[1:] - raw[:1], offset[1:] - offset[:1]
        yield raw, offset, torch.tensor(share, dtype=torch.float64), rank


def _folds_from_scatter(
    scaled: RowBlocks,
    y: Tensor,
    folds: Tensor,
    moments: ClassMoments,
    deviation: Tensor,
    fourth: bool,
) -> Iterator[_DiscriminantFold]:
    """Folds with more rows than features, from scatter matrices."""
    assert moments.overall.scatter is not None
    centre, unit = moments.overall.mean, moments.overall.deviation
    grams = fold_scatters(scaled, folds, total=moments.overall.scatter / torch.outer(unit, unit))
    mean = (moments.mean - centre) / unit
    spread = torch.zeros(len(folds))
    if fourth:
        spread = _fourth_moments(scaled, y, folds, mean, deviation)
    for k, gram in enumerate(grams):
        count = moments.count[k]
        within = gram - (mean[k] * count[:, None]).T @ mean[k]
        own = mean[k] - (count / count.sum()) @ mean[k]
        yield _DiscriminantFold(
            within / torch.outer(deviation[k], deviation[k]), own / deviation[k], count, spread[k]
        )


def _folds_from_gram(
    scaled: RowBlocks,
    y: Tensor,
    folds: Tensor,
    moments: ClassMoments,
    deviation: Tensor,
    fourth: bool,
) -> Iterator[_DiscriminantFold]:
    """Folds with fewer rows than features, in the span of their rows."""
    mean = (moments.mean - moments.overall.mean) / moments.overall.deviation
    for k, mask in enumerate(folds):
        index = mask.nonzero()[:, 0]
        count, labels = moments.count[k], y[index.to(y.device)].to(scaled.device).long()
        gaps = (scaled.take(index).double() - mean[k][labels]) / deviation[k]
        own = (mean[k] - (count / count.sum()) @ mean[k]) / deviation[k]
        both = torch.cat([gaps, own])
        values, left = torch.linalg.eigh(both @ both.T)
        used = values > 1e-12 * values[-1].clamp_min(1e-300)
        basis = both.T @ (left[:, used] / values[used].sqrt())
        inside = gaps @ basis
        spread = gaps.square().sum(1).square().sum()
        yield _DiscriminantFold(inside.T @ inside, own @ basis, count, spread, basis)


def _within_class_std(moments: ClassMoments, unit: Tensor) -> Float[Tensor, "fold d"]:
    """Within-class standard deviation of each feature, relative to that of all rows."""
    pooled = (moments.variance * moments.count[..., None]).sum(1) / moments.count.sum(
        1, keepdim=True
    )
    ratio = pooled / unit.square()
    return torch.where(ratio < 1e-14, torch.ones_like(ratio), ratio.clamp_min(0.0).sqrt())


def _fourth_moments(
    scaled: RowBlocks, y: Tensor, folds: Tensor, mean: Tensor, deviation: Tensor
) -> Float[Tensor, " fold"]:
    """Per fold, the sum over its rows of |x - its class mean|^4 in scaled features."""
    total = torch.zeros(len(folds), dtype=torch.float64, device=scaled.device)
    for index, block in scaled:
        labels, double = y[index].to(scaled.device).long(), block.double()
        for k, mask in enumerate(folds[:, index].to(scaled.device)):
            gap = (double[mask] - mean[k][labels[mask]]) / deviation[k]
            total[k] += gap.square().sum(1).square().sum()
    return total


def _shrinkage_amount(fold: _DiscriminantFold, d: int, shrinkage: Shrinkage) -> float:
    """The amount of shrinkage; for 'auto' the estimate of Ledoit and Wolf."""
    if shrinkage != "auto":
        return float(shrinkage or 0.0)
    n = float(fold.count.sum())
    square = float(fold.scatter.square().sum()) / n**2
    trace = float(fold.scatter.diagonal().sum()) / n
    noise = (float(fold.fourth) / n - square) / (d * n)
    gap = (square - trace**2 / d) / d
    return min(noise, gap) / gap if gap > 0 else 1.0


def _inverse_times_means(
    fold: _DiscriminantFold, d: int, share: float, plain: bool
) -> tuple[Tensor, Tensor]:
    """The inverse covariance times each class mean, and the rank of the inverse."""
    covariance = fold.scatter / fold.count.sum()
    if not plain:
        level = share * float(covariance.diagonal().sum()) / d
        covariance = (1.0 - share) * covariance
        covariance.diagonal().add_(level)
    # If this Cholesky factor exists, all eigenvalues are above the tolerance.
    identity = torch.eye(len(covariance)).to(covariance)
    checked = covariance - (MIN_EIGENVALUE if plain else 0.0) * identity
    if int(torch.linalg.cholesky_ex(checked)[1]) == 0:
        return torch.linalg.solve(covariance, fold.means.T).T, torch.tensor(len(covariance))
    values, vectors = torch.linalg.eigh(covariance)
    used = values > MIN_EIGENVALUE
    inside = (fold.means @ vectors[:, used]) / values[used]
    return inside @ vectors[:, used].T, used.sum()
