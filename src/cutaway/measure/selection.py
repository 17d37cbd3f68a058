"""Choosing one of many cells (layers, poolers, classifiers, prompts, features) and scoring it.

Choosing by the test scores and reporting the best of them overstates it: of 200 cells that know
nothing, the best looks good. So:

- `choose`: in each repeat, the cell with the best validation score of that repeat.
- `chosen_values`: the test scores of these choices; no test row of a repeat took part in its
  choice, so their mean is unbiased for the procedure "choose on validation rows".
- `chance_gain`: how much the best of so many equally good cells would exceed them by chance, if it
  was chosen by its test score.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cutaway.core.errors import BadData

Key = TypeVar("Key", bound=Hashable)
CHANCE_DRAWS = 2000
"""Simulations of the best of many cells."""


@dataclass(frozen=True)
class Choice(Generic[Key]):
    """The cell that validation scores choose."""

    key: Key
    """The cell with the best mean validation score: the one to name."""
    by_repeat: tuple[Key, ...]
    """The choice of each repeat: the one to score."""


def choose(
    validation: Mapping[Key, Sequence[float]], *, higher_is_better: bool = True
) -> Choice[Key]:
    """The choice by validation scores, one per repeat and cell (NaN for none).

    Of equal scores the first cell is chosen. BadData if a repeat has no score.
    """
    keys, sign = list(validation), 1.0 if higher_is_better else -1.0
    scores = sign * np.array([list(validation[key]) for key in keys], dtype=np.float64)
    missing = np.isnan(scores)
    if scores.size == 0 or bool(missing.all(axis=0).any()):
        raise BadData("No cell has a validation score in some repeat: there is nothing to choose.")
    merits = np.where(missing, -np.inf, scores)
    means = np.where(missing, 0.0, scores).sum(axis=1) / np.maximum((~missing).sum(axis=1), 1)
    # A cell without a score in some repeat is named only if every cell is like that.
    gaps = missing.all(axis=1) if missing.any(axis=1).all() else missing.any(axis=1)
    means[gaps] = -np.inf
    by_repeat = tuple(keys[int(place)] for place in merits.argmax(axis=0))
    return Choice(keys[int(means.argmax())], by_repeat)


def chosen_values(choice: Choice[Key], test: Mapping[Key, Sequence[float]]) -> tuple[float, ...]:
    """The test score of each repeat's choice."""
    return tuple(float(test[key][repeat]) for repeat, key in enumerate(choice.by_repeat))


def chance_gain(scores: ArrayLike, *, errors: ArrayLike, seed: int = 0) -> float:
    """The expected excess of the best of many equally good cells, chosen by its test score.

    `scores` (cells, units) are scores of the same units of test data: blocks of rows, or repeats.
    From them come the correlations between cells, which are large for neighbouring layers.
    `errors` (cells,) are the standard errors of the cells' means. With fewer than two units the
    cells are taken to be independent, which gives an upper bound.
    """
    units, spread = np.asarray(scores, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    rng = np.random.default_rng(seed)
    if units.ndim < 2 or units.shape[1] < 2:
        drawn = rng.standard_normal((len(spread), CHANCE_DRAWS))
    else:
        apart = units - units.mean(axis=1, keepdims=True)
        size = np.sqrt((apart**2).sum(axis=1, keepdims=True))
        shares = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
        drawn = shares @ rng.standard_normal((units.shape[1], CHANCE_DRAWS))
    found = float((spread[:, None] * drawn).max(axis=0).mean())
    return 0.0 if isnan(found) else max(0.0, found)
