"""Classifiers without gradient training: logistic, ridge, LDA, QDA, naive Bayes, centroid, PCA.

Most are fitted on all splits at once and read the features in blocks of rows, so they also work on
matrices larger than memory; all of these but the logistic one are computed from sums that the
splits share. QDA and PCA are fitted one split at a time.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.measure.splits import Split
from cutaway.methods.probe.maths.fitted import (
    FitSettings,
    FitSplitsFunction,
    FittedProbe,
    binary_relevance_splits,
    linear_probe,
    matrix_shape,
    split_masks,
)
from cutaway.solvers.discriminant import ClassMoments, Shrinkage, class_moments, discriminant
from cutaway.solvers.logistic import C_GRID, logistic_with_best_c
from cutaway.solvers.ridge import ridge_path
from cutaway.solvers.rows import RowBlocks, as_row_blocks, memory_slices

ALPHA_GRID = tuple(np.logspace(-1, 6, 15).tolist())


def logistic(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Tensor,
    splits: Sequence[Split],
    settings: FitSettings,
    *,
    strengths: Sequence[float] = C_GRID,
    standardise: bool = True,
    tol: float = 1e-4,
) -> list[FittedProbe]:
    """Logistic regression with the C of the lowest validation log-loss."""
    if len(strengths) > 1 and any(len(split.val) == 0 for split in splits):
        raise BadData(
            "'logistic' chooses C on validation rows, and a split has none; give a validation "
            "fraction above 0, or one C."
        )
    n = matrix_shape(x)[0]
    path, best = logistic_with_best_c(
        x,
        y,
        train=split_masks(splits, "train", n),
        val=split_masks(splits, "val", n),
        classes=settings.classes if settings.task == "multiclass" else 2,
        strengths=strengths,
        balanced=settings.balanced,
        standardise=standardise,
        tol=tol,
    )
    return [
        linear_probe(
            path.weights[f, c],
            path.intercept[f, c],
            settings,
            "logit",
            {
                "c": path.strengths[c],
                "gradient": float(path.gradient[f, c]),
                "iterations": int(path.iterations[f, c]),
                "converged": bool(path.converged[f, c]),
            },
        )
        for f, c in enumerate(best.tolist())
    ]


def ridge(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Tensor,
    splits: Sequence[Split],
    settings: FitSettings,
    *,
    alphas: Sequence[float] = ALPHA_GRID,
) -> list[FittedProbe]:
    """Ridge regression on the values, or on -1 and 1, with the alpha of the best leave-one-out."""
    folds = split_masks(splits, "train", matrix_shape(x)[0])
    path = ridge_path(x, regression_targets(y, settings), alphas=alphas, folds=folds)
    link = "value" if settings.task == "regression" else "margin"
    return [
        linear_probe(
            path.weights[f, a],
            path.intercept[f, a],
            settings,
            link,  # type: ignore[arg-type]
            {"alpha": path.alphas[a], "loo_mse": float(path.loo[f, a].mean())},
        )
        for f, a in enumerate(path.best().tolist())
    ]


def regression_targets(y: Tensor, settings: FitSettings) -> Float[Tensor, "n target"]:
    """Targets of a regression: the values, or 1 for the class and -1 for the others."""
    if settings.task == "regression":
        return y.double()[:, None]
    if settings.task == "multiclass":
        y = torch.nn.functional.one_hot(y.long(), settings.classes)
    return 2.0 * (y if y.ndim == 2 else y[:, None]).double() - 1.0


def lda(shrinkage: Shrinkage) -> FitSplitsFunction:
    """Linear discriminant analysis, with or without (None) shrinkage."""

    def make(
        x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], settings: FitSettings
    ) -> list[FittedProbe]:
        folds = split_masks(splits, "train", matrix_shape(x)[0])
        found = discriminant(x, y, classes=settings.classes, folds=folds, shrinkage=shrinkage)
        bias = found.intercept
        if settings.balanced:
            bias = bias - _log_priors(y, folds, settings.classes).to(bias)
        return [
            linear_probe(
                found.weights[f], bias[f], settings, "logit", {"shrinkage": share, "rank": rank}
            )
            for f, (share, rank) in enumerate(
                zip(found.shrinkage.tolist(), found.rank.tolist(), strict=True)
            )
        ]

    return binary_relevance_splits(make)


def _log_priors(y: Tensor, folds: Tensor, classes: int) -> Float[Tensor, "fold cls"]:
    """The logarithms of the class frequencies; of their ratio for two classes."""
    kinds = torch.nn.functional.one_hot(y.cpu().long(), classes).double()
    share = torch.log(folds.double() @ kinds / folds.sum(1, keepdim=True))
    return share[:, 1:] - share[:, :1] if classes == 2 else share


def naive_bayes(
    x: Shaped[Tensor, "n d"] | RowBlocks, y: Tensor, splits: Sequence[Split], settings: FitSettings
) -> list[FittedProbe]:
    """Gaussian naive Bayes with scikit-learn's variance smoothing."""
    return [
        _naive_bayes_probe(seen, f, settings)
        for seen, f in _class_sums_by_split(x, y, splits, settings)
    ]


def _class_sums_by_split(
    x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], settings: FitSettings
) -> Iterator[tuple[ClassMoments, int]]:
    """For each split, the class sums of its group of splits and its index in them."""
    n, _ = matrix_shape(x)
    folds = split_masks(splits, "train", n)
    for group in memory_slices(len(splits), 4 * settings.classes * n):
        seen = class_moments(as_row_blocks(x), y, folds[group], settings.classes, scatter=False)
        yield from ((seen, f) for f in range(group.stop - group.start))


def _naive_bayes_probe(seen: ClassMoments, f: int, settings: FitSettings) -> FittedProbe:
    share = seen.count[f] / seen.count[f].sum()
    centre = share @ seen.mean[f]
    mean = seen.mean[f] - centre
    spread = share @ (seen.variance[f] + mean.square())
    # If all features are constant there is no variance to take a share of; any value will do.
    variance = seen.variance[f] + (1e-9 * float(spread.max()) or 1.0)
    prior = torch.zeros_like(share) if settings.balanced else torch.log(share)
    level = prior - 0.5 * (torch.log(2 * torch.pi * variance) + mean.square() / variance).sum(1)

    def score(x: Tensor) -> Tensor:
        parts = []
        for _, block in as_row_blocks(x, dtype=mean.dtype):
            gap = block - centre
            parts.append(gap @ (mean / variance).T - 0.5 * gap.square() @ (1.0 / variance).T)
        scores = torch.cat(parts) + level
        return scores[:, 1] - scores[:, 0] if settings.task == "binary" else scores

    return FittedProbe(score, "logit", 2 * mean.numel() + len(share))


def nearest_centroid(
    x: Shaped[Tensor, "n d"] | RowBlocks, y: Tensor, splits: Sequence[Split], settings: FitSettings
) -> list[FittedProbe]:
    """Nearest class mean: minus the squared distance to each, without the term they share."""
    made = []
    for seen, f in _class_sums_by_split(x, y, splits, settings):
        weights, bias = 2.0 * seen.mean[f], -seen.mean[f].square().sum(1)
        if settings.task == "binary":
            weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
        made.append(linear_probe(weights, bias, settings, "margin", {}))
    return made


def qda(
    x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, settings: FitSettings
) -> FittedProbe:
    """One Gaussian per class, its covariance shrunk towards its own variances (Ledoit, Wolf)."""
    x, kinds = x_train.double(), y_train.to(x_train.device).long()
    density = [
        _class_log_density(x[kinds == k], k, x.var(0, correction=0))
        for k in range(settings.classes)
    ]
    share = torch.bincount(kinds, minlength=settings.classes).double() / len(kinds)
    prior = torch.zeros_like(share) if settings.balanced else torch.log(share)

    def score(x: Tensor) -> Tensor:
        scores = torch.stack([each(x.double()) for each in density], 1) + prior
        return scores[:, 1] - scores[:, 0] if settings.task == "binary" else scores

    d = x.shape[1]
    return FittedProbe(score, "logit", settings.classes * (d + d * (d + 1) // 2 + 1))


def _class_log_density(
    x: Float[Tensor, "n d"], kind: int, spread: Tensor
) -> Callable[[Tensor], Tensor]:
    """The log-density of the Gaussian of one class."""
    if len(x) < 2:
        raise BadData(
            f"'qda' needs at least 2 training rows of each class, class {kind} has {len(x)}."
        )
    mean = x.mean(0)
    # A feature that is constant within the class keeps a fraction of its overall variance.
    variance = x.var(0, correction=0).clamp_min(1e-6 * spread).clamp_min(1e-300)
    scaled = (x - mean) / variance.sqrt()
    share = _ledoit_wolf_shrinkage(scaled)
    covariance = (1.0 - share) * (scaled.T @ scaled) / len(x)
    covariance.diagonal().add_(max(share, 1e-6) * float(scaled.square().mean()) + 1e-12)
    factor = torch.linalg.cholesky(covariance)
    level = -torch.log(factor.diagonal()).sum() - 0.5 * torch.log(2 * torch.pi * variance).sum()

    def density(rows: Tensor) -> Tensor:
        inner = torch.linalg.solve_triangular(
            factor, ((rows - mean) / variance.sqrt()).T, upper=False
        )
        return level - 0.5 * inner.square().sum(0)

    return density


def _ledoit_wolf_shrinkage(x: Float[Tensor, "n d"]) -> float:
    """The shrinkage of the covariance of centred rows."""
    n, d = x.shape
    # X^T X and X X^T have the same norm; use the smaller one.
    gram = x.T @ x if d <= n else x @ x.T
    square, trace = float(gram.square().sum()) / n**2, float(gram.diagonal().sum()) / n
    noise = (float(x.square().sum(1).square().sum()) / n - square) / (d * n)
    gap = (square - trace**2 / d) / d
    return min(noise, gap) / gap if gap > 0 else 1.0


def pca(
    x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, settings: FitSettings
) -> FittedProbe:
    """The projection on the first principal axis, which does not depend on the labels.

    Binary: signed towards class 1. Several classes: minus the squared distance to each class
    mean on the axis. Regression: the least-squares line over it.
    """
    x = x_train.double()
    mean = x.mean(0)
    axis = _first_axis(x - mean)
    place = (x - mean) @ axis
    read = {
        "binary": _signed_head,
        "multiclass": _nearest_mean_head,
        "regression": _least_squares_head,
    }[settings.task]
    head = read(place, y_train.to(x.device), settings)
    link = "value" if settings.task == "regression" else "margin"
    return FittedProbe(
        lambda rows: head((rows.double() - mean) @ axis),
        link,  # type: ignore[arg-type]
        2 * len(axis),
        {"variance_share": float(place.square().sum() / (x - mean).square().sum())},
        cut=float("nan"),
    )


def _first_axis(x: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The direction of most variance."""
    if x.shape[1] <= x.shape[0]:
        return torch.linalg.eigh(x.T @ x)[1][:, -1]
    axis = x.T @ torch.linalg.eigh(x @ x.T)[1][:, -1]
    return axis / axis.norm().clamp_min(1e-300)


def _signed_head(place: Tensor, y: Tensor, settings: FitSettings) -> Callable[[Tensor], Tensor]:
    sign = 1.0 if place[y == 1].mean() >= place[y == 0].mean() else -1.0
    return lambda values: sign * values


def _nearest_mean_head(
    place: Tensor, y: Tensor, settings: FitSettings
) -> Callable[[Tensor], Tensor]:
    # A class without rows is infinitely far away instead of at NaN.
    centre = torch.stack([place[y == k].mean() for k in range(settings.classes)]).nan_to_num(1e150)
    return lambda values: -(values[:, None] - centre).square()


def _least_squares_head(
    place: Tensor, y: Tensor, settings: FitSettings
) -> Callable[[Tensor], Tensor]:
    middle = y.double().mean()
    slope = (place @ (y.double() - middle)) / place.square().sum().clamp_min(1e-300)
    return lambda values: middle + slope * values
