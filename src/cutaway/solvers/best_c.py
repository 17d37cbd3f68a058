"""Logistic regression with its C chosen on validation rows, for every fold at once."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from cutaway.solvers.logistic import LogisticPath, logistic_path, path_losses
from cutaway.solvers.rows import RowBlocks

# Features have unit deviation, so these run from "the class means only" to "the margin only".
C_GRID = tuple(np.logspace(-5, 1, 10).tolist())
MAX_OBJECTIVE_GAP = 1e-3
"""Share of the objective that a search may leave. Where the classes are separable, gradients become
small long before the minimum, and C would be chosen from fits that have not converged."""


def logistic_with_best_c(
    x: Shaped[Tensor, "n d"] | RowBlocks,
    y: Shaped[Tensor, " n"] | Shaped[Tensor, "n cls"],
    *,
    train: Bool[Tensor, "fold n"],
    val: Bool[Tensor, "fold n"],
    classes: int = 2,
    strengths: Sequence[float] = C_GRID,
    balanced: bool = False,
    standardise: bool = True,
    tol: float = 1e-4,
) -> tuple[LogisticPath, Int[Tensor, " fold"]]:
    """All fits of the path, and for each fold the index of the C with the lowest validation loss.

    `train` and `val` mark the rows of each fold. With a single C, `val` is not used.
    """
    path = logistic_path(
        x,
        y,
        strengths=strengths,
        folds=train,
        classes=classes,
        balanced=balanced,
        standardise=standardise,
        tol=tol,
        gap=MAX_OBJECTIVE_GAP,
    )
    if len(strengths) == 1:
        return path, torch.zeros(len(train), dtype=torch.long)
    return path, path_losses(path, x, y, folds=val, balanced=balanced).argmin(1).cpu()
