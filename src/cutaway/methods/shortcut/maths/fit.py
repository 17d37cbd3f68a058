"""Maps from cross-products: one factorisation per source layer serves all its targets."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadSpec, Missing
from cutaway.methods.shortcut.maths.moments import Moments, StateKey

Prior = Literal["zero", "identity"]

# Candidate penalties, relative to the mean squared (scaled) coordinate.
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Shortcut:
    """A map from one layer to another: `hidden @ factors[0] @ ... + bias`.

    One factor is a full matrix, two are a low-rank one, none is the identity (the logit lens).
    """

    factors: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    ridge: float = 0.0
    note: str = ""
    """A warning of the fit for the user."""

    def __call__(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows out"]:
        """The predicted states of the target layer."""
        for factor in self.factors:
            hidden = hidden @ factor.to(hidden)
        return hidden if self.bias is None else hidden + self.bias.to(hidden)

    @property
    def matrix(self) -> Tensor:
        """The factors multiplied out."""
        if not self.factors:
            raise Missing("The identity has no matrix: apply it to hidden states.")
        product = self.factors[0]
        for factor in self.factors[1:]:
            product = product @ factor
        return product


IDENTITY = Shortcut()


@dataclass(frozen=True)
class SourceGram:
    """The Gram matrix of a source layer: scaled, centred with an intercept, factorised."""

    moments: Moments
    site: StateKey
    intercept: bool = False

    @cached_property
    def matrix(self) -> Float[Tensor, "d d"]:
        """Sums of products of the source's coordinates, about the mean with an intercept."""
        gram = self.moments.grams[self.site, self.site]
        return gram - self._outer(self.site) if self.intercept else gram

    @cached_property
    def scale(self) -> Float[Tensor, " d"]:
        """1 / norm of each coordinate, so that outlier coordinates count like the others."""
        norm = self.matrix.diagonal().clamp(min=0).sqrt()
        # The row of the map of a constant coordinate to_identity 0.
        return torch.where(norm > 1e-12 * norm.max(), 1 / norm, torch.zeros_like(norm))

    @cached_property
    def scaled(self) -> Float[Tensor, "d d"]:
        """The Gram matrix with a diagonal of ones."""
        return self.scale[:, None] * self.matrix * self.scale

    @cached_property
    def cholesky(self) -> Float[Tensor, "d d"] | None:
        """The Cholesky factor; None where the Gram matrix is singular to working precision."""
        factor, failed = torch.linalg.cholesky_ex(self.scaled)
        weakest = factor.diagonal().min() ** 2
        return None if failed or weakest < len(factor) * 1e-14 else factor

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Eigenvalues and eigenvectors of the scaled Gram matrix, shared by all penalties."""
        values, vectors = torch.linalg.eigh(self.scaled)
        return values.clamp(min=0), vectors

    @property
    def underdetermined(self) -> bool:
        """No more rows than coordinates: least squares would interpolate them."""
        return self.moments.rows <= len(self.matrix)

    @property
    def overfits(self) -> bool:
        """Fewer than two rows per coordinate: least squares overfits."""
        return self.moments.rows < 2 * len(self.matrix)

    def cross(self, target: StateKey) -> Float[Tensor, "d out"]:
        """Sums of products of source and target coordinates."""
        gram = self.moments.grams[self.site, target]
        return gram - self._outer(target) if self.intercept else gram

    def solve(self, cross: Float[Tensor, "d out"], ridge: float) -> Float[Tensor, "d out"]:
        """The map that minimises the squared error plus `ridge` times its scaled squared norm."""
        right = self.scale[:, None] * cross
        if ridge == 0 and self.cholesky is not None:
            return self.scale[:, None] * torch.cholesky_solve(right, self.cholesky)
        values, vectors = self.spectrum
        shrunk = values + ridge
        # Without a penalty, directions without data are dropped: the minimum-norm solution.
        weak = shrunk <= values.max() * len(values) * torch.finfo(values.dtype).eps
        inverse = torch.where(weak, torch.zeros_like(shrunk), 1 / shrunk)
        return self.scale[:, None] * (vectors @ (inverse[:, None] * (vectors.T @ right)))

    def _outer(self, target: StateKey) -> Tensor:
        sums = self.moments.sums
        return torch.outer(sums[self.site], sums[target]) / self.moments.rows


def fit_shortcuts(
    moments: Moments,
    source: StateKey,
    targets: Iterable[StateKey],
    *,
    ridge: float | Literal["auto"] = 0.0,
    intercept: bool = False,
    rank: int | None = None,
    prior: Prior = "identity",
) -> dict[StateKey, Shortcut]:
    """The least-squares map from `source` to each target.

    `ridge` shrinks the map towards `prior`; "auto" takes the value with the least generalised
    cross-validation error. With no more rows than coordinates a penalty of 0 becomes "auto";
    with fewer than twice as many the map's note warns.
    """
    gram = SourceGram(moments, source, intercept)
    note = ""
    if gram.underdetermined and ridge == 0:
        ridge = "auto"
        note = (
            f"{moments.rows} rows for {len(gram.matrix)} coordinates: plain least squares would "
            "interpolate them, so a ridge penalty was chosen by cross-validation."
        )
    elif gram.overfits and ridge == 0:
        note = (
            f"{moments.rows} rows for {len(gram.matrix)} coordinates: maps without a penalty "
            "overfit. Give more text, or fit with --ridge auto and use that kind."
        )
    check_fit_options(ridge, rank, len(gram.matrix))
    return {t: _solve_target(gram, t, ridge, rank, prior, note) for t in targets}


def check_fit_options(ridge: float | str, rank: int | None, width: int) -> None:
    """BadSpec unless a map of this width can have these options."""
    if ridge != "auto" and not (isinstance(ridge, (int, float)) and ridge >= 0):
        raise BadSpec(f"ridge must be 'auto' or a number of at least 0, got {ridge!r}.")
    if rank is not None and not 1 <= rank <= width:
        raise BadSpec(f"rank must be between 1 and the width {width}, got {rank!r}.")


def _solve_target(
    gram: SourceGram,
    target: StateKey,
    ridge: float | Literal["auto"],
    rank: int | None,
    prior: Prior,
    note: str,
) -> Shortcut:
    if (gram.site, target) not in gram.moments.grams:
        raise Missing(f"No cross-products from {gram.site!r} to {target!r} were gathered.")
    cross = gram.cross(target)
    # Shrinking towards the identity is ridge regression of the step from source to target.
    to_identity = prior == "identity" and cross.shape[0] == cross.shape[1] and ridge != 0
    rest = cross - gram.matrix if to_identity else cross
    penalty = _best_ridge(gram, target, rest, to_identity) if ridge == "auto" else float(ridge)
    matrix = gram.solve(rest, penalty)
    if to_identity:
        matrix.diagonal().add_(1.0)
    factors = (matrix,) if rank is None else _reduced_rank(matrix, gram.matrix, rank)
    bias = _intercept(gram, target, factors).float() if gram.intercept else None
    return Shortcut(tuple(f.float() for f in factors), bias, penalty, note)


def _best_ridge(gram: SourceGram, target: StateKey, rest: Tensor, to_identity: bool) -> float:
    """The penalty with the least generalised cross-validation error."""
    values, vectors = gram.spectrum
    # Coordinates of the target are weighted by 1 / variance, so that outliers don't dominate.
    weight = 1 / _target_spread(gram, target)
    power = (vectors.T @ (gram.scale[:, None] * rest)).square() @ weight
    total = _total_squares(gram, target, to_identity) @ weight

    def error(ridge: float) -> float:
        inverse = 1 / (values + ridge)
        squared = total - 2 * (power * inverse).sum() + (power * values * inverse.square()).sum()
        freedom = gram.moments.rows - (values * inverse).sum() - int(gram.intercept)
        return float(squared / freedom**2) if freedom > 0 else float("inf")

    return min(RIDGES, key=error)


def _total_squares(gram: SourceGram, target: StateKey, to_identity: bool) -> Tensor:
    """Squared norm of the target, or of the step from source to target, per coordinate."""
    moments, site = gram.moments, gram.site
    size = moments.squares[target]
    sums = moments.sums[target]
    if to_identity:
        size = size + moments.squares[site] - 2 * moments.grams[site, target].diagonal()
        sums = sums - moments.sums[site]
    return size - sums.square() / moments.rows if gram.intercept else size


def _target_spread(gram: SourceGram, target: StateKey) -> Tensor:
    """Squared distance of the target from its mean, per coordinate, never 0."""
    moments = gram.moments
    spread = moments.squares[target] - moments.sums[target].square() / moments.rows
    return spread.clamp(min=float(spread.max()) * 1e-12 + 1e-300)


def _reduced_rank(matrix: Tensor, gram: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Reduced-rank regression: the best map of this rank, as two factors."""
    fitted = matrix.T @ gram @ matrix
    _, vectors = torch.linalg.eigh((fitted + fitted.T) / 2)
    top = vectors[:, -rank:]
    return matrix @ top, top.T.contiguous()


def _intercept(gram: SourceGram, target: StateKey, factors: tuple[Tensor, ...]) -> Tensor:
    moved = gram.moments.sums[gram.site]
    for factor in factors:
        moved = moved @ factor
    return (gram.moments.sums[target] - moved) / gram.moments.rows
