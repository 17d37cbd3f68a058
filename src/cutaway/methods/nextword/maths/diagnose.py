"""Tests of the theory: how linear Phi p is in f, and how quadratic the log-partition."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.solvers.ridge import ridge_path

ALPHAS = tuple(10.0**power for power in range(-2, 6))
MAX_DIRECTIONS = 48
# Training rows needed for each quadratic term.
ROWS_PER_TERM = 4

RowIndex = Int[Tensor, " _"]


@dataclass(frozen=True)
class LogPartitionR2:
    """R2 on test rows of the log-partition from f: linear, and with quadratic terms."""

    linear: float
    quadratic: float
    directions: int
    """The number of principal components of f whose pairwise products are the quadratic terms."""


def linear_r2(
    f: Float[Tensor, "n e"], target: Float[Tensor, "n _"], train: RowIndex, test: RowIndex
) -> float:
    """R2 on test rows of ridge regression from f, weighted by the variance of each target.

    The penalty has the lowest leave-one-out error.
    """
    if len(train) < 2 or len(test) < 2:
        raise BadData("R2 needs at least two training rows and two test rows.")
    path = ridge_path(f[train], target[train].double(), alphas=ALPHAS)
    best = int(path.best()[0])
    predicted = f[test].double() @ path.weights[0, best].T + path.intercept[0, best]
    truth = target[test].double()
    variance = (truth - truth.mean(0)).square().sum()
    return float(1 - (truth - predicted).square().sum() / variance.clamp_min(1e-300))


def log_partition_r2(
    f: Float[Tensor, "n e"], logz: Float[Tensor, " n"], train: RowIndex, test: RowIndex
) -> LogPartitionR2:
    """R2 of log Z from f, and from f with the pairwise products of its principal components.

    All d (d + 1) / 2 products of f would be more than there are rows, so the number of components
    is limited by the number of training rows.
    """
    count = n_directions(len(train), f.shape[1])
    target = logz[:, None]
    linear = linear_r2(f, target, train, test)
    if count == 0:
        return LogPartitionR2(linear, linear, 0)
    terms = pairwise_products(principal_components(f, train, count))
    both = torch.cat([f.double(), terms], dim=1)
    return LogPartitionR2(linear, linear_r2(both, target, train, test), count)


def n_directions(rows: int, width: int) -> int:
    """The number of components whose pairwise products can be fitted to this many rows."""
    terms = rows / ROWS_PER_TERM
    return int(min(width, MAX_DIRECTIONS, ((1 + 8 * terms) ** 0.5 - 1) // 2))


def principal_components(
    f: Float[Tensor, "n e"], train: RowIndex, count: int
) -> Float[Tensor, "n _"]:
    """The leading principal components of f, whitened; fitted on the training rows."""
    learn = f[train].double()
    centred = learn - learn.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(learn))
    scale = values[-count:].clamp_min(1e-12 * values[-1].clamp_min(1e-300)).sqrt()
    return (f.double() - learn.mean(0)) @ vectors[:, -count:] / scale


def pairwise_products(z: Float[Tensor, "n k"]) -> Float[Tensor, "n _"]:
    """All products of two columns, squares included."""
    first, second = torch.triu_indices(z.shape[1], z.shape[1])
    return z[:, first] * z[:, second]
