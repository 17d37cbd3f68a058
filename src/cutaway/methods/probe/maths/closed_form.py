"""Probes without a search that learn from one split at a time: QDA and the first principal axis."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.methods.probe.maths.fitted import FitFunction, FitSettings, FittedProbe
from cutaway.methods.probe.maths.linear import combine_labels


def binary_relevance(make: FitFunction) -> FitFunction:
    """For labels that go together: one binary classifier each, their scores side by side."""

    def every(
        x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, aim: FitSettings
    ) -> FittedProbe:
        if aim.task != "multilabel":
            return make(x_train, y_train, x_val, y_val, aim)
        one = FitSettings("binary", 2, aim.seed, aim.balanced)
        return combine_labels(
            [make(x_train, y_train[:, k], x_val, y_val[:, k], one) for k in range(aim.classes)]
        )

    return every


def qda(
    x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, aim: FitSettings
) -> FittedProbe:
    """One Gaussian per class, its covariance shrunk towards its own variances (Ledoit, Wolf)."""
    x, kinds = x_train.double(), y_train.to(x_train.device).long()
    density = [
        _class_log_density(x[kinds == k], k, x.var(0, correction=0)) for k in range(aim.classes)
    ]
    share = torch.bincount(kinds, minlength=aim.classes).double() / len(kinds)
    prior = torch.zeros_like(share) if aim.balanced else torch.log(share)

    def score(x: Tensor) -> Tensor:
        scores = torch.stack([each(x.double()) for each in density], 1) + prior
        return scores[:, 1] - scores[:, 0] if aim.task == "binary" else scores

    d = x.shape[1]
    return FittedProbe(score, "logit", aim.classes * (d + d * (d + 1) // 2 + 1))


def _class_log_density(
    x: Float[Tensor, "n d"], kind: int, spread: Tensor
) -> Callable[[Tensor], Tensor]:
    """The log-density of the Gaussian of one class."""
    if len(x) < 2:
        raise BadData(
            f"'qda' needs at least 2 rows of each class to learn from, class {kind} has {len(x)}."
        )
    mean = x.mean(0)
    # A feature that is constant within the class keeps a trace of its overall variance.
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
    """How far to shrink the covariance of centred rows."""
    n, d = x.shape
    # |X^T X| and |X X^T| are the same; the smaller matrix is the cheaper.
    gram = x.T @ x if d <= n else x @ x.T
    square, trace = float(gram.square().sum()) / n**2, float(gram.diagonal().sum()) / n
    noise = (float(x.square().sum(1).square().sum()) / n - square) / (d * n)
    gap = (square - trace**2 / d) / d
    return min(noise, gap) / gap if gap > 0 else 1.0


def pca(
    x_train: Tensor, y_train: Tensor, x_val: Tensor, y_val: Tensor, aim: FitSettings
) -> FittedProbe:
    """The place along the first principal axis, which no label has chosen.

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
    }[aim.task]
    head = read(place, y_train.to(x.device), aim)
    link = "value" if aim.task == "regression" else "margin"
    return FittedProbe(
        lambda rows: head((rows.double() - mean) @ axis),
        link,  # type: ignore[arg-type]
        2 * len(axis),
        {"variance_share": float(place.square().sum() / (x - mean).square().sum())},
    )


def _first_axis(x: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The direction of most variance."""
    if x.shape[1] <= x.shape[0]:
        return torch.linalg.eigh(x.T @ x)[1][:, -1]
    axis = x.T @ torch.linalg.eigh(x @ x.T)[1][:, -1]
    return axis / axis.norm().clamp_min(1e-300)


def _signed_head(place: Tensor, y: Tensor, aim: FitSettings) -> Callable[[Tensor], Tensor]:
    sign = 1.0 if place[y == 1].mean() >= place[y == 0].mean() else -1.0
    return lambda values: sign * values


def _nearest_mean_head(place: Tensor, y: Tensor, aim: FitSettings) -> Callable[[Tensor], Tensor]:
    # A class without rows is infinitely far away, not at NaN.
    centre = torch.stack([place[y == k].mean() for k in range(aim.classes)]).nan_to_num(1e150)
    return lambda values: -(values[:, None] - centre).square()


def _least_squares_head(place: Tensor, y: Tensor, aim: FitSettings) -> Callable[[Tensor], Tensor]:
    middle = y.double().mean()
    slope = (place @ (y.double() - middle)) / place.square().sum().clamp_min(1e-300)
    return lambda values: middle + slope * values
