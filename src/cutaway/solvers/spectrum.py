"""The eigenvectors of a feature matrix, for preconditioning logistic regression.

The Hessian of a logistic problem is X^T diag(p(1-p)) X + I/C. With p(1-p) replaced by its mean
c it is c X^T X + I/C, which one eigendecomposition inverts for all C, folds and classes at once
(Boehning 1992 bounds the Hessian that way, with c = 1/4). As a preconditioner it removes the
conditioning of the features, outlier dimensions included; only the variation of p(1-p) between rows
remains.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.solvers.rows import GroupMoments, RowBlocks
from cutaway.solvers.scatter import MAX_SCATTER_WIDTH


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and eigenvectors of X^T X / n: all, or those in the span of some rows."""

    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]

    @property
    def complete(self) -> bool:
        """Whether the eigenvectors span the space."""
        return self.vectors.shape[0] == self.vectors.shape[1]

    def solve(
        self,
        gradient: Float[Tensor, "p cls d"],
        curvature: Float[Tensor, "p cls"],
        penalty: Float[Tensor, " p"],
    ) -> Float[Tensor, "p cls d"]:
        """(curvature * X^T X / n + penalty * I)^-1 times each gradient."""
        level = penalty[:, None, None]
        inside = gradient @ self.vectors
        scaled = inside / torch.addcmul(level, curvature[:, :, None], self.values)
        if self.complete:
            return scaled @ self.vectors.T
        return torch.addcmul((scaled - inside / level) @ self.vectors.T, gradient, 1.0 / level)


def needs_scatter(rows: RowBlocks) -> bool:
    """Whether to compute the eigenvectors from the d x d scatter matrix."""
    return rows.d <= min(rows.n, MAX_SCATTER_WIDTH)


def spectrum(
    rows: RowBlocks, seen: GroupMoments, scale: Float[Tensor, " d"], *, max_rows: int | None = None
) -> Spectrum:
    """The eigenvectors of `rows` (already centred and scaled by `scale`), in the rows' dtype.

    For a matrix too wide for its scatter matrix, those in the span of `max_rows` of its rows.
    """
    if seen.scatter is not None:
        values, vectors = torch.linalg.eigh(seen.scatter / torch.outer(scale, scale) / rows.n)
        return Spectrum(values.clamp_min(0.0).to(rows.dtype), vectors.to(rows.dtype))
    # A preconditioner may be approximate, so evenly spaced rows are enough.
    count = min(rows.n, max_rows or MAX_SCATTER_WIDTH)
    some = rows.take(torch.arange(count) * rows.n // count).double()
    values, left = torch.linalg.eigh(some @ some.T / count)
    used = values > 1e-10 * values[-1].clamp_min(1e-300)
    vectors = some.T @ (left[:, used] / (values[used] * count).sqrt())
    return Spectrum(values[used].to(rows.dtype), vectors.to(rows.dtype))
