"""Batched solvers over blocks of rows: logistic regression, ridge regression, discriminants."""

from cutaway.solvers.discriminant import ClassMoments, Discriminant, class_moments, discriminant
from cutaway.solvers.logistic import LogisticPath, logistic_path, path_losses
from cutaway.solvers.ridge import RidgePath, ridge_path
from cutaway.solvers.rows import RowBlocks, as_row_blocks, check_finite, group_moments

__all__ = [
    "ClassMoments",
    "Discriminant",
    "LogisticPath",
    "RidgePath",
    "RowBlocks",
    "as_row_blocks",
    "class_moments",
    "discriminant",
    "check_finite",
    "logistic_path",
    "path_losses",
    "ridge_path",
    "group_moments",
]
