"""Projections of hidden states to two dimensions."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

ProbeProjection = Literal["pca", "lda"]


def project_2d(
    x: Float[Tensor, "n d"], labels: Int[Tensor, " n"] | None, way: ProbeProjection
) -> Float[Tensor, "n 2"]:
    """Two coordinates per row: principal axes (pca), or discriminant axes (lda).

    With two classes the second lda axis is the principal axis orthogonal to the first.
    """
    centred = x.double() - x.double().mean(0)
    if way == "pca" or labels is None:
        return _principal_components(centred, 2)
    # PCA first: with fewer rows than columns any labels would be separable.
    narrow = _principal_components(centred, min(30, max(2, len(x) // 10), x.shape[1]))
    axes = _discriminant_axes(narrow, labels)
    first = narrow @ axes[:, :1]
    if axes.shape[1] > 1:
        return torch.cat([first, narrow @ axes[:, 1:2]], 1)
    unit = axes[:, 0] / axes[:, 0].norm().clamp(min=1e-300)
    rest = narrow - torch.outer(narrow @ unit, unit)
    return torch.cat([first, _principal_components(rest - rest.mean(0), 1)], 1)


def _principal_components(centred: Float[Tensor, "n d"], count: int) -> Float[Tensor, "n k"]:
    """Principal components, with fixed signs so that figures are reproducible."""
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    axes = axes[:count]
    signs = torch.sign(axes[torch.arange(len(axes)), axes.abs().argmax(1)])
    made = centred @ (axes * signs[:, None]).T
    return torch.nn.functional.pad(made, (0, count - made.shape[1]))


def _discriminant_axes(
    x: Float[Tensor, "n k"], labels: Int[Tensor, " n"]
) -> Float[Tensor, "k axes"]:
    kinds = np.unique(labels.numpy())
    means = torch.stack([x[labels == int(kind)].mean(0) for kind in kinds])
    within = sum(
        (x[labels == int(kind)] - mean).T @ (x[labels == int(kind)] - mean)
        for kind, mean in zip(kinds, means, strict=True)
    )
    assert isinstance(within, Tensor)
    # The ridge keeps the system solvable if a class has no variance.
    size = max(1e-6 * float(within.diagonal().mean()), 1e-12)
    ridge = size * torch.eye(x.shape[1], dtype=x.dtype)
    between = (means - x.mean(0)).T
    values, vectors = torch.linalg.eigh(between @ between.T)
    order = values.argsort(descending=True)[: max(1, min(2, len(kinds) - 1))]
    return torch.linalg.lstsq(within + ridge, vectors[:, order], driver="gelsd").solution
