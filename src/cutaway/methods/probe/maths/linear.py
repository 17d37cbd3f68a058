"""Logistic, ridge, discriminant, naive Bayes and centroid probes, for every split at once.

All of them read the features only as blocks of rows, so they serve a matrix on disk as well, and
all but the logistic one are made of sums that the splits of one matrix share.
"""

from collections.abc import Iterator, Sequence

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
    linear_probe,
    matrix_shape,
    split_masks,
)
from cutaway.solvers import (
    ClassMoments,
    RowBlocks,
    as_row_blocks,
    class_moments,
    discriminant,
    ridge_path,
)
from cutaway.solvers.discriminant import Shrinkage
from cutaway.solvers.logistic import C_GRID, logistic_with_best_c
from cutaway.solvers.rows import memory_slices

ALPHA_GRID = tuple(np.logspace(-1, 6, 15).tolist())


def logistic(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Tensor,
    splits: Sequence[Split],
    aim: FitSettings,
    *,
    strengths: Sequence[float] = C_GRID,
    standardise: bool = True,
    tol: float = 1e-4,
) -> list[FittedProbe]:
    """Logistic regression with the C of the least validation log-loss."""
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
        classes=aim.classes if aim.task == "multiclass" else 2,
        strengths=strengths,
        balanced=aim.balanced,
        standardise=standardise,
        tol=tol,
    )
    return [
        linear_probe(
            path.weights[f, c],
            path.intercept[f, c],
            aim,
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
    aim: FitSettings,
    *,
    alphas: Sequence[float] = ALPHA_GRID,
) -> list[FittedProbe]:
    """Ridge regression on the values, or on -1 and 1, with the alpha of the best leave-one-out."""
    folds = split_masks(splits, "train", matrix_shape(x)[0])
    path = ridge_path(x, regression_targets(y, aim), alphas=alphas, folds=folds)
    link = "value" if aim.task == "regression" else "margin"
    return [
        linear_probe(
            path.weights[f, a],
            path.intercept[f, a],
            aim,
            link,  # type: ignore[arg-type]
            {"alpha": path.alphas[a], "loo_mse": float(path.loo[f, a].mean())},
        )
        for f, a in enumerate(path.best().tolist())
    ]


def regression_targets(y: Tensor, aim: FitSettings) -> Float[Tensor, "n target"]:
    """Targets of a regression: the values, or 1 for the class and -1 for the others."""
    if aim.task == "regression":
        return y.double()[:, None]
    if aim.task == "multiclass":
        y = torch.nn.functional.one_hot(y.long(), aim.classes)
    return 2.0 * (y if y.ndim == 2 else y[:, None]).double() - 1.0


def lda(shrinkage: Shrinkage) -> FitSplitsFunction:
    """Linear discriminants, plain (None) or shrunk."""

    def make(
        x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], aim: FitSettings
    ) -> list[FittedProbe]:
        folds = split_masks(splits, "train", matrix_shape(x)[0])
        found = discriminant(x, y, classes=aim.classes, folds=folds, shrinkage=shrinkage)
        bias = found.intercept
        if aim.balanced:
            bias = bias - _log_priors(y, folds, aim.classes).to(bias)
        return [
            linear_probe(
                found.weights[f], bias[f], aim, "logit", {"shrinkage": share, "rank": rank}
            )
            for f, (share, rank) in enumerate(
                zip(found.shrinkage.tolist(), found.rank.tolist(), strict=True)
            )
        ]

    return binary_relevance_splits(make)


def _log_priors(y: Tensor, folds: Tensor, classes: int) -> Float[Tensor, "fold cls"]:
    """The logarithms of the class shares; of their ratio where there are two classes."""
    kinds = torch.nn.functional.one_hot(y.cpu().long(), classes).double()
    share = torch.log(folds.double() @ kinds / folds.sum(1, keepdim=True))
    return share[:, 1:] - share[:, :1] if classes == 2 else share


def naive_bayes(
    x: Shaped[Tensor, "n d"] | RowBlocks, y: Tensor, splits: Sequence[Split], aim: FitSettings
) -> list[FittedProbe]:
    """Gaussian naive Bayes, smoothed as scikit-learn's."""
    return [_naive_bayes_probe(seen, f, aim) for seen, f in _class_sums_by_split(x, y, splits, aim)]


def _class_sums_by_split(
    x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], aim: FitSettings
) -> Iterator[tuple[ClassMoments, int]]:
    """The class sums that hold each split, and its place in them."""
    n, _ = matrix_shape(x)
    folds = split_masks(splits, "train", n)
    for group in memory_slices(len(splits), 4 * aim.classes * n):
        seen = class_moments(as_row_blocks(x), y, folds[group], aim.classes, scatter=False)
        yield from ((seen, f) for f in range(group.stop - group.start))


def _naive_bayes_probe(seen: ClassMoments, f: int, aim: FitSettings) -> FittedProbe:
    share = seen.count[f] / seen.count[f].sum()
    centre = share @ seen.mean[f]
    mean = seen.mean[f] - centre
    spread = share @ (seen.variance[f] + mean.square())
    # Features that never change have no variance to add a share of; any will do.
    variance = seen.variance[f] + (1e-9 * float(spread.max()) or 1.0)
    prior = torch.zeros_like(share) if aim.balanced else torch.log(share)
    level = prior - 0.5 * (torch.log(2 * torch.pi * variance) + mean.square() / variance).sum(1)

    def score(x: Tensor) -> Tensor:
        parts = []
        for _, block in as_row_blocks(x, dtype=mean.dtype):
            gap = block - centre
            parts.append(gap @ (mean / variance).T - 0.5 * gap.square() @ (1.0 / variance).T)
        scores = torch.cat(parts) + level
        return scores[:, 1] - scores[:, 0] if aim.task == "binary" else scores

    return FittedProbe(score, "logit", 2 * mean.numel() + len(share))


def nearest_centroid(
    x: Shaped[Tensor, "n d"] | RowBlocks, y: Tensor, splits: Sequence[Split], aim: FitSettings
) -> list[FittedProbe]:
    """The nearest class mean: minus the squared distance to each, less what all share."""
    made = []
    for seen, f in _class_sums_by_split(x, y, splits, aim):
        weights, bias = 2.0 * seen.mean[f], -seen.mean[f].square().sum(1)
        if aim.task == "binary":
            weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
        made.append(linear_probe(weights, bias, aim, "margin", {}))
    return made


def binary_relevance_splits(make: FitSplitsFunction) -> FitSplitsFunction:
    """For labels that go together: one binary classifier each, their scores side by side."""

    def many(
        x: Tensor | RowBlocks, y: Tensor, splits: Sequence[Split], aim: FitSettings
    ) -> list[FittedProbe]:
        if aim.task != "multilabel":
            return make(x, y, splits, aim)
        one = FitSettings("binary", 2, aim.seed, aim.balanced)
        each = [make(x, y[:, k], splits, one) for k in range(aim.classes)]
        return [combine_labels(list(group)) for group in zip(*each, strict=True)]

    return many


def combine_labels(fits: Sequence[FittedProbe]) -> FittedProbe:
    """Binary classifiers as one that scores every label."""

    def chance(x: Tensor) -> Tensor:
        every = [fit.probabilities(x, fit.scores(x)) for fit in fits]
        return torch.stack([one for one in every if one is not None], 1)

    return FittedProbe(
        lambda x: torch.stack([fit.scores(x) for fit in fits], 1),
        fits[0].link,
        sum(fit.parameters for fit in fits),
        {"each": [dict(fit.notes) for fit in fits]},
        exclusive=False,
        chance=chance if all(fit.chance is not None for fit in fits) else None,
    )
