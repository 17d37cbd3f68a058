"""Batched solvers over blocks of rows: logistic regression, ridge regression, discriminants."""
