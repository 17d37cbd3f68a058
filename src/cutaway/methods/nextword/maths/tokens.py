"""The tokens with the largest effect on each class's score, with example rows."""

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


def top_tokens(
    weights: Float[Tensor, "out d"], std: Float[Tensor, " d"], *, classes: int, most: int = 10
) -> list[TopToken]:
    """The tokens with the largest effects, class by class.

    With two classes, positive effects belong to the second and negative ones to the first.
    """
    rows = torch.cat([-weights, weights]) if classes == 2 else weights
    effect = rows * std.to(rows)
    tokens = []
    for label in range(classes):
        top = effect[label].topk(min(most, effect.shape[1]))
        for value, column in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            if value > 0:
                tokens.append(TopToken(label, column, float(rows[label, column]), value))
    return tokens


def example_rows(
    values: Float[Tensor, " n"], rows: NDArray[np.int64], of_class: NDArray[np.bool_], most: int = 2
) -> list[int]:
    """The rows of a class with the largest values; `values` and `of_class` are those of `rows`."""
    index = np.flatnonzero(of_class)
    largest = values[torch.from_numpy(index)].topk(min(most, len(index))).indices
    return [int(rows[index[i]]) for i in largest.tolist()]
