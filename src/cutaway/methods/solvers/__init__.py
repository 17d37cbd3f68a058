"""Numerics shared by the methods: logistic paths, ridge paths, discriminants, all over blocks."""

from cutaway.methods.solvers.discriminant import ClassSums, Discriminant, class_sums, discriminant
from cutaway.methods.solvers.logistic import LogisticPath, logistic_path, path_losses
from cutaway.methods.solvers.ridge import RidgePath, ridge_path
from cutaway.methods.solvers.rows import Rows, as_rows, finite_rows, sums

__all__ = [
    "ClassSums",
    "Discriminant",
    "LogisticPath",
    "RidgePath",
    "Rows",
    "as_rows",
    "class_sums",
    "discriminant",
    "finite_rows",
    "logistic_path",
    "path_losses",
    "ridge_path",
    "sums",
]
