"""r2 of maps: as scikit-learn computes it, in one batch or in many."""

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

from cutaway.core.errors import BadData
from cutaway.methods.shortcut.maths.fidelity import StreamingR2, r2_per_coordinate
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut
from tests.methods.shortcut.maths.test_fit import measure


def test_r2_is_scikit_learns_mean_over_coordinates_including_constant_ones() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(50, 4))).float()
    y = x + torch.from_numpy(rng.normal(size=(50, 4))).float()
    x[:, 0], y[:, 0] = 1.0, 1.0
    x[:, 1], y[:, 1] = 2.0, 3.0
    ours = measure({0: x, 1: y}, {"id": {(0, 1): IDENTITY}})["id", (0, 1)]
    assert ours == pytest.approx(r2_score(y.numpy(), x.numpy()), abs=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_large_mean_costs_no_digits(offset) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)) + offset
    y = x + 0.5 * rng.normal(size=(120, 5))
    states = {0: torch.from_numpy(x), 1: torch.from_numpy(y)}
    found = measure(states, {"id": {(0, 1): IDENTITY}})["id", (0, 1)]
    assert found == pytest.approx(r2_score(y, x), abs=1e-6)


def test_kinds_and_pairs_are_measured_apart() -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    states = {0: x, 1: 2 * x, 2: 3 * x}
    double = Shortcut((2 * torch.eye(3),))
    found = measure(states, {"id": {(0, 1): IDENTITY, (0, 2): IDENTITY}, "mat": {(0, 1): double}})
    assert set(found) == {("id", (0, 1)), ("id", (0, 2)), ("mat", (0, 1))}
    assert found["mat", (0, 1)] == pytest.approx(1.0)
    assert found["id", (0, 2)] < found["id", (0, 1)] < 1


def test_constant_coordinates_count_one_if_exact_else_zero() -> None:
    residual, spread = torch.tensor([0.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, 4.0])
    assert r2_per_coordinate(residual, spread).tolist() == [1.0, 0.0, 0.75]


def test_without_rows_nothing_can_be_measured() -> None:
    with pytest.raises(BadData, match="No rows to measure on"):
        StreamingR2().r2("id", (0, 1))
