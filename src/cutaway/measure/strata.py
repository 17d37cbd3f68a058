"""Stratified splitting of rows.

Strata are the classes for binary and multiclass; for multilabel each row counts under its rarest
label; for regression under its tenth of the label range, by rank.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import Task

RowIndices = NDArray[np.int64]
RANK_BINS = 10


def strata(labels: NDArray[Any], task: Task) -> RowIndices:
    """The stratum number of each row."""
    table = {
        "binary": _classes,
        "multiclass": _classes,
        "multilabel": _rarest_label,
        "regression": _rank_bins,
    }
    if task not in table:
        raise BadData(
            f"Texts of task {task!r} have no labels to split by: {', '.join(table)} have."
        )
    return table[task](np.asarray(labels))


def shuffle(rows: RowIndices, rng: np.random.Generator) -> RowIndices:
    """The rows in a random order that is the same on every platform and NumPy version.

    Uniform doubles are the one stream NumPy has never changed; its own shuffle may change.
    """
    return rows[np.argsort(rng.random(len(rows)), kind="stable")]


def allocate(counts: NDArray[np.int64], fractions: tuple[float, ...]) -> NDArray[np.int64]:
    """How many rows of each stratum go to each part: (strata, parts).

    Every number is its exact share rounded down or up. Remaining rows go to the parts
    that are furthest below their share so far, so that the totals match the fractions too; a
    stratum without a row in the first part (train) gives it its first remaining row.
    """
    exact = counts[:, None] * np.asarray(fractions)[None, :]
    # 0.7 * 10 is 7.000000000000001 and 0.1 * 30 is 3.0000000000000004; 0.3 * 10 must stay 3.
    whole = np.floor(exact + 1e-9).astype(np.int64)
    lag = np.zeros(len(fractions))
    for shares, cells, count in zip(exact, whole, counts, strict=True):
        lag += shares - cells
        spare = int(count - cells.sum())
        wanting = np.where(shares - cells > 1e-9, lag, -np.inf)
        if cells[0] == 0:
            wanting[0] = np.inf
        chosen = np.argsort(-wanting, kind="stable")[:spare]
        cells[chosen] += 1
        lag[chosen] -= 1
    return whole


def stratified_cut(
    rows: RowIndices, groups: RowIndices, fractions: tuple[float, ...], rng: np.random.Generator
) -> list[RowIndices]:
    """The rows in random parts of these fractions, each with the proportions of the strata."""
    mixed = shuffle(rows, rng)
    _, place, counts = np.unique(groups[mixed], return_inverse=True, return_counts=True)
    shares = allocate(counts, fractions)
    # Sorted by stratum; inside one, in the shuffled order.
    order = np.argsort(place, kind="stable")
    inside = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    bounds = np.cumsum(shares, axis=1)
    part = (inside[:, None] >= bounds[place[order]]).sum(axis=1)
    return [np.sort(mixed[order[part == k]]) for k in range(len(fractions))]


def nested_order(rows: RowIndices, groups: RowIndices, rng: np.random.Generator) -> RowIndices:
    """The rows in a random order in which every prefix has the proportions of the strata.

    One row of each stratum comes first, so that no longer prefix lacks a class.
    """
    mixed = shuffle(rows, rng)
    _, place, counts = np.unique(groups[mixed], return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    inside = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    due = np.where(inside == 0, 0.0, (inside + 0.5) / np.repeat(counts, counts))
    return mixed[order[np.lexsort((rng.random(len(rows)), due))]]


def _classes(labels: NDArray[Any]) -> RowIndices:
    return labels.astype(np.int64)


def _rarest_label(labels: NDArray[Any]) -> RowIndices:
    marked = labels == 1
    count = np.where(marked, marked.sum(axis=0), len(labels) + 1)
    return np.where(marked.any(axis=1), count.argmin(axis=1), labels.shape[1]).astype(np.int64)


def _rank_bins(labels: NDArray[Any]) -> RowIndices:
    if not bool(np.isfinite(labels).all()):
        raise BadData(
            f"{int((~np.isfinite(labels)).sum())} labels are not finite; drop those rows."
        )
    rank = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
    # At least five rows per bin.
    bins = int(np.clip(len(labels) // 5, 1, RANK_BINS))
    return rank * bins // len(labels)
