"""Numerics shared by the methods: logistic paths, ridge paths, discriminants, all over blocks."""

from cutaway.methods.solvers.discriminant import (
    ClassMoments,
    Discriminant,
    class_moments,
    discriminant,
)
from cutaway.methods.solvers.logistic import LogisticPath, logistic_path, path_losses
from cutaway.methods.solvers.ridge import RidgePath, ridge_path
from cutaway.methods.solvers.rows import RowBlocks, as_row_blocks, check_finite, group_moments

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
