"""How linear the theory's quantities are: Phi p from f, the log-partition as a quadratic of f."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.solvers import ridge_path

ALPHAS = tuple(10.0**power for power in range(-2, 6))
MAX_DIRECTIONS = 48
# A square term for every so many rows to learn from.
ROWS_PER_TERM = 4

RowIndex = Int[Tensor, " _"]


@dataclass(frozen=True)
class LogPartitionR2:
    """Held-out R2 of the log-partition: linear in f, and with squares of its main directions."""

    linear: float
    quadratic: float
    directions: int
    """So many principal directions of f entered with all their products."""


def linear_r2(
    f: Float[Tensor, "n e"], target: Float[Tensor, "n _"], train: RowIndex, test: RowIndex
) -> float:
    """Share of the target's variance on test rows that a ridge map from f explains.

    Variance-weighted over coordinates; the penalty is the one with the best leave-one-out error.
    """
    if len(train) < 2 or len(test) < 2:
        raise BadData("R2 needs at least two rows to learn from and two to test on.")
    path = ridge_path(f[train], target[train].double(), alphas=ALPHAS)
    best = int(path.best()[0])
    said = f[test].double() @ path.weights[0, best].T + path.intercept[0, best]
    truth = target[test].double()
    spread = (truth - truth.mean(0)).square().sum()
    return float(1 - (truth - said).square().sum() / spread.clamp_min(1e-300))


def log_partition_r2(
    f: Float[Tensor, "n e"], logz: Float[Tensor, " n"], train: RowIndex, test: RowIndex
) -> LogPartitionR2:
    """R2 of log Z from f, and from f with all products of its main directions.

    All d (d + 1) / 2 products of f would be more than there are rows: as many principal
    directions enter as the rows can carry, which is told.
    """
    count = n_directions(len(train), f.shape[1])
    target = logz[:, None]
    plain = linear_r2(f, target, train, test)
    if count == 0:
        return LogPartitionR2(plain, plain, 0)
    both = torch.cat([f.double(), pairwise_products(principal_components(f, train, count))], dim=1)
    return LogPartitionR2(plain, linear_r2(both, target, train, test), count)


def n_directions(rows: int, width: int) -> int:
    """How many directions' products so many rows can carry."""
    terms = rows / ROWS_PER_TERM
    return int(min(width, MAX_DIRECTIONS, ((1 + 8 * terms) ** 0.5 - 1) // 2))


def principal_components(
    f: Float[Tensor, "n e"], train: RowIndex, count: int
) -> Float[Tensor, "n _"]:
    """f along its principal directions on the train rows, unit variance each."""
    seen = f[train].double()
    centred = seen - seen.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(seen))
    scale = values[-count:].clamp_min(1e-12 * values[-1].clamp_min(1e-300)).sqrt()
    return (f.double() - seen.mean(0)) @ vectors[:, -count:] / scale


def pairwise_products(z: Float[Tensor, "n k"]) -> Float[Tensor, "n _"]:
    """All products of two columns, squares included."""
    first, second = torch.triu_indices(z.shape[1], z.shape[1])
    return z[:, first] * z[:, second]
