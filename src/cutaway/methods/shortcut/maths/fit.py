"""From cross-products to shortcuts: one factorisation per source layer serves all its targets."""

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

# Shares of the mean squared (scaled) coordinate; tried when the penalty is to be chosen.
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Shortcut:
    """A jump from one layer to another: `hidden @ factors[0] @ ... + bias`.

    One factor is a full matrix, two are a low rank one, none is the identity (the logit lens).
    """

    factors: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    ridge: float = 0.0
    note: str = ""
    """What the fit did that the user should know."""

    def __call__(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows out"]:
        """Where `hidden` is expected to be at the target layer."""
        for factor in self.factors:
            hidden = hidden @ factor.to(hidden.dtype)
        return hidden if self.bias is None else hidden + self.bias.to(hidden.dtype)

    @property
    def matrix(self) -> Tensor:
        """The factors multiplied out."""
        if not self.factors:
            raise Missing("The identity shortcut keeps no matrix: apply it to hidden states.")
        product = self.factors[0]
        for factor in self.factors[1:]:
            product = product @ factor
        return product


IDENTITY = Shortcut()


@dataclass(frozen=True)
class SourceGram:
    """A source layer made ready: its Gram matrix, scaled, centred if asked for, factorised."""

    moments: Moments
    site: StateKey
    intercept: bool = False

    @cached_property
    def gram(self) -> Float[Tensor, "d d"]:
        """Sums of products of the source's coordinates, about the mean with an intercept."""
        gram = self.moments.grams[self.site, self.site]
        return gram - self._outer(self.site) if self.intercept else gram

    @cached_property
    def scale(self) -> Float[Tensor, " d"]:
        """One over each coordinate's size, so that outlier coordinates weigh like the others."""
        size = self.gram.diagonal().clamp(min=0).sqrt()
        # A coordinate that never moves has nothing to say: its row of the map stays 0.
        return torch.where(size > 1e-12 * size.max(), 1 / size, torch.zeros_like(size))

    @cached_property
    def scaled(self) -> Float[Tensor, "d d"]:
        """The Gram matrix with a diagonal of ones."""
        return self.scale[:, None] * self.gram * self.scale

    @cached_property
    def cholesky(self) -> Float[Tensor, "d d"] | None:
        """The Cholesky factor; None where the Gram matrix is singular to working precision."""
        factor, failed = torch.linalg.cholesky_ex(self.scaled)
        weakest = factor.diagonal().min() ** 2
        return None if failed or weakest < len(factor) * 1e-14 else factor

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Eigenvalues and eigenvectors of the scaled Gram matrix: every penalty is then free."""
        values, vectors = torch.linalg.eigh(self.scaled)
        return values.clamp(min=0), vectors

    @property
    def starved(self) -> bool:
        """Fewer rows than coordinates: plain least squares would only repeat its rows."""
        return self.moments.rows <= len(self.gram)

    @property
    def hungry(self) -> bool:
        """Hardly more rows than coordinates: least squares follows the noise of its rows."""
        return self.moments.rows < 2 * len(self.gram)

    def cross(self, target: StateKey) -> Float[Tensor, "d out"]:
        """Sums of products of source and target coordinates."""
        gram = self.moments.grams[self.site, target]
        return gram - self._outer(target) if self.intercept else gram

    def solve(self, cross: Float[Tensor, "d out"], ridge: float) -> Float[Tensor, "d out"]:
        """The map that minimises the squared error, plus `ridge` times its scaled size."""
        right = self.scale[:, None] * cross
        if ridge == 0 and self.cholesky is not None:
            return self.scale[:, None] * torch.cholesky_solve(right, self.cholesky)
        values, vectors = self.spectrum
        shrunk = values + ridge
        # Without a penalty, directions no row has are left out: the smallest map that fits.
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
    """The least-squares shortcut from `source` to each target.

    `ridge` pulls the map towards `prior`; "auto" takes the value with the least generalised
    cross-validation error. With no more rows than coordinates a penalty of 0 becomes "auto",
    and the shortcut's note says so; with less than twice as many it warns.
    """
    ready = SourceGram(moments, source, intercept)
    note = ""
    if ready.starved and ridge == 0:
        ridge = "auto"
        note = (
            f"{moments.rows} rows for {len(ready.gram)} coordinates: plain least squares would "
            "only repeat its rows, so a ridge penalty was chosen by cross-validation."
        )
    elif ready.hungry and ridge == 0:
        note = (
            f"{moments.rows} rows for {len(ready.gram)} coordinates: maps without a penalty will "
            "be poor on other text. Give more text, or fit with --ridge auto and use that kind."
        )
    check_fit_options(ridge, rank, len(ready.gram))
    return {t: _solve_target(ready, t, ridge, rank, prior, note) for t in targets}


def shortcut_ridge_path(
    moments: Moments,
    source: StateKey,
    target: StateKey,
    ridges: Iterable[float] = RIDGES,
    *,
    intercept: bool = False,
    prior: Prior = "identity",
) -> dict[float, Shortcut]:
    """One shortcut per penalty, all from one eigendecomposition."""
    ready = SourceGram(moments, source, intercept)
    return {ridge: _solve_target(ready, target, ridge, None, prior, "") for ridge in ridges}


def check_fit_options(ridge: float | str, rank: int | None, width: int) -> None:
    """BadSpec unless such a map of this width can be."""
    if ridge != "auto" and not (isinstance(ridge, (int, float)) and ridge >= 0):
        raise BadSpec(f"ridge must be 'auto' or a number of at least 0, got {ridge!r}.")
    if rank is not None and not 1 <= rank <= width:
        raise BadSpec(f"rank must be between 1 and the width {width}, got {rank!r}.")


def _solve_target(
    ready: SourceGram,
    target: StateKey,
    ridge: float | Literal["auto"],
    rank: int | None,
    prior: Prior,
    note: str,
) -> Shortcut:
    if (ready.site, target) not in ready.moments.grams:
        raise Missing(f"No cross-products from {ready.site!r} to {target!r} were gathered.")
    cross = ready.cross(target)
    # Pulling towards the identity is ridge regression of the step from source to target.
    stays = prior == "identity" and cross.shape[0] == cross.shape[1] and ridge != 0
    rest = cross - ready.gram if stays else cross
    penalty = _best_ridge(ready, target, rest, stays) if ridge == "auto" else float(ridge)
    matrix = ready.solve(rest, penalty)
    if stays:
        matrix.diagonal().add_(1.0)
    factors = (matrix,) if rank is None else _reduced_rank(matrix, ready.gram, rank)
    bias = _intercept(ready, target, factors).float() if ready.intercept else None
    return Shortcut(tuple(f.float() for f in factors), bias, penalty, note)


def _best_ridge(ready: SourceGram, target: StateKey, rest: Tensor, stays: bool) -> float:
    """The penalty with the least generalised cross-validation error, from the spectrum alone."""
    values, vectors = ready.spectrum
    # Every coordinate of the target counts by its variance, so outliers don't decide alone.
    weight = 1 / _target_spread(ready, target)
    power = (vectors.T @ (ready.scale[:, None] * rest)).square() @ weight
    total = _total_squares(ready, target, stays) @ weight

    def error(ridge: float) -> float:
        kept = 1 / (values + ridge)
        squared = total - 2 * (power * kept).sum() + (power * values * kept.square()).sum()
        freedom = ready.moments.rows - (values * kept).sum() - int(ready.intercept)
        return float(squared / freedom**2) if freedom > 0 else float("inf")

    return min(RIDGES, key=error)


def _total_squares(ready: SourceGram, target: StateKey, stays: bool) -> Tensor:
    """Squared size of the target, or of the step from source to target, per coordinate."""
    moments, site = ready.moments, ready.site
    size = moments.squares[target]
    sums = moments.sums[target]
    if stays:
        size = size + moments.squares[site] - 2 * moments.grams[site, target].diagonal()
        sums = sums - moments.sums[site]
    return size - sums.square() / moments.rows if ready.intercept else size


def _target_spread(ready: SourceGram, target: StateKey) -> Tensor:
    """Squared distance of the target from its mean, per coordinate, never 0."""
    moments = ready.moments
    spread = moments.squares[target] - moments.sums[target].square() / moments.rows
    return spread.clamp(min=float(spread.max()) * 1e-12 + 1e-300)


def _reduced_rank(matrix: Tensor, gram: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Reduced-rank regression: the best map of that rank for these rows, as two factors."""
    fitted = matrix.T @ gram @ matrix
    _, vectors = torch.linalg.eigh((fitted + fitted.T) / 2)
    top = vectors[:, -rank:]
    return matrix @ top, top.T.contiguous()


def _intercept(ready: SourceGram, target: StateKey, factors: tuple[Tensor, ...]) -> Tensor:
    moved = ready.moments.sums[ready.site]
    for factor in factors:
        moved = moved @ factor
    return (ready.moments.sums[target] - moved) / ready.moments.rows
