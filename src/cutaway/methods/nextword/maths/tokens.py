"""The tokens with the largest effect on each class's score, with example rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class TopToken:
    """A token that raises the score of a class."""

    label: int
    column: int
    """The feature: a token id for p, an index into the word list for subset."""
    weight: float
    effect: float
    """Weight times the standard deviation of the feature."""
    examples: tuple[int, ...]
    """Rows of the class with the largest value of the feature."""


def top_tokens(
    weights: Float[Tensor, "out d"], std: Float[Tensor, " d"], *, classes: int, most: int = 10
) -> list[tuple[int, int, float, float]]:
    """(class, column, weight, effect) of the largest effects, class by class.

    With two classes, positive effects belong to the second and negative ones to the first.
    """
    rows = torch.cat([-weights, weights]) if classes == 2 else weights
    effect = rows * std.to(rows)
    found = []
    for label in range(classes):
        top = effect[label].topk(min(most, effect.shape[1]))
        for value, column in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            if value > 0:
                found.append((label, column, float(rows[label, column]), value))
    return found


def with_examples(
    top: Sequence[tuple[int, int, float, float]],
    values: Float[Tensor, "n tokens"],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    each: int = 2,
) -> list[TopToken]:
    """Add to each top token the rows of its class where its feature is largest.

    `values` holds the features of `rows`, one column per entry of `top`.
    """
    tokens = []
    for i, (label, column, weight, effect) in enumerate(top):
        of_class = np.flatnonzero(labels[rows] == label)
        largest = values[torch.from_numpy(of_class), i].topk(min(each, len(of_class))).indices
        examples = tuple(int(rows[of_class[k]]) for k in largest.tolist())
        tokens.append(TopToken(label, column, weight, effect, examples))
    return tokens
