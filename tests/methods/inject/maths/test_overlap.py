"""Fisher mass, drift, largest entries and overlap on small cases."""

import numpy as np
import pytest
import torch

from cutaway.core.params import weight_drift
from cutaway.methods.inject.maths.overlap import (
    fisher_mass,
    jaccard,
    largest_entries,
    moving_average,
    rank_correlation,
    values_at,
)

SHAPES = {"a": (3, 4), "b": (5,), "c": (300, 300)}


def weights(seed: int) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}


def test_masses_add_up_to_one() -> None:
    found = fisher_mass(
        {"a": torch.ones(3), "b": torch.ones(1)}, lambda n: (1, "x" if n == "a" else "y")
    )
    assert found == {(1, "x"): 0.75, (1, "y"): 0.25}


def test_drift_is_relative_to_the_length_of_the_weights() -> None:
    start = {"a": torch.tensor([3.0, 4.0])}
    moved = {"a": torch.tensor([3.0, 5.0])}
    assert weight_drift(moved, start, lambda n: (0, n)) == {(0, "a"): pytest.approx(0.2)}


def test_the_top_entries_are_found_across_weights() -> None:
    fisher = {"a": torch.tensor([[1.0, 9.0]]), "b": torch.tensor([5.0, 7.0])}
    found = largest_entries(fisher, 3)
    assert found.keys() == {("a", 1), ("b", 1), ("b", 0)}
    assert found.values.tolist() == [9, 7, 5]
    assert values_at({name: 2 * value for name, value in fisher.items()}, found).tolist() == [
        18,
        14,
        10,
    ]


def test_a_fisher_overlaps_wholly_with_itself() -> None:
    fisher = {name: value.square() for name, value in weights(0).items()}
    assert jaccard(largest_entries(fisher, 50), largest_entries(fisher, 50)) == 1
    assert (
        jaccard(
            largest_entries(fisher, 5), largest_entries({n: 1 / v for n, v in fisher.items()}, 5)
        )
        == 0
    )
    rng = np.random.default_rng(0)
    assert rank_correlation(fisher, {n: 3 * v for n, v in fisher.items()}, rng=rng) == (
        pytest.approx(1)
    )
    assert rank_correlation(fisher, {n: -v for n, v in fisher.items()}, rng=rng) == (
        pytest.approx(-1)
    )


def test_the_moving_average_of_a_constant_is_the_constant() -> None:
    np.testing.assert_allclose(moving_average(np.full(9, 2.5), 4), 2.5)
    np.testing.assert_allclose(moving_average(np.arange(5.0), 3), [0.5, 1, 2, 3, 3.5])
