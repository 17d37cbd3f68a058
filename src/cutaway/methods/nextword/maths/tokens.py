"""Which words carry it: the tokens with the largest say for each class, with sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class TopToken:
    """A token that speaks for a class: its weight, how much it moves scores, where it shows."""

    label: int
    column: int
    """Which feature: a token id for p, a place in the word list for subset."""
    weight: float
    effect: float
    """Weight times the feature's deviation: how far it moves the score of an ordinary text."""
    examples: tuple[int, ...]
    """Rows of that class in which it counts most."""


def top_tokens(
    weights: Float[Tensor, "out d"],
    deviation: Float[Tensor, " d"],
    *,
    classes: int,
    most: int = 10,
) -> list[tuple[int, int, float, float]]:
    """(class, column, weight, effect), the largest effects first, class by class.

    Of two classes the second is spoken for by positive effects, the first by negative ones.
    """
    rows = torch.cat([-weights, weights]) if classes == 2 else weights
    effect = rows * deviation.to(rows)
    found = []
    for label in range(classes):
        top = effect[label].topk(min(most, effect.shape[1]))
        for value, column in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            if value > 0:
                found.append((label, column, float(rows[label, column]), value))
    return found


def with_examples(
    found: Sequence[tuple[int, int, float, float]],
    values: Float[Tensor, "n tokens"],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    each: int = 2,
) -> list[TopToken]:
    """Each telling token with the rows of its class where its feature is largest.

    `values` holds the features of `rows`, one column per entry of `found`.
    """
    made = []
    for place, (label, column, weight, effect) in enumerate(found):
        mine = np.flatnonzero(labels[rows] == label)
        own = values[torch.from_numpy(mine), place]
        top = own.topk(min(each, len(mine))).indices.tolist()
        examples = tuple(int(rows[mine[i]]) for i in top)
        made.append(TopToken(label, column, weight, effect, examples))
    return made
