"""R2 of linear and quadratic maps from f, on targets whose R2 is known."""

import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.methods.nextword.maths.diagnose import (
    linear_r2,
    log_partition_r2,
    n_directions,
    pairwise_products,
    principal_components,
)
from tests.methods.nextword.maths.heads import E, N

TRAIN, TEST = torch.arange(170), torch.arange(170, N)


def test_a_linear_target_has_r2_1_and_a_random_one_none(f) -> None:
    linear = f @ torch.randn(E, 3, dtype=torch.float64) + 2
    assert linear_r2(f, linear, TRAIN, TEST) > 0.999
    noise = torch.randn(N, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert linear_r2(f, noise, TRAIN, TEST) < 0.1


def test_half_of_the_variance_explained_is_r2_of_a_half() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 2, generator=rng, dtype=torch.float64)
    r2 = linear_r2(x[:, :1], x.sum(1, keepdim=True), torch.arange(2000), torch.arange(2000, 4000))
    assert r2 == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("train", "test"), [(TRAIN[:1], TEST), (TRAIN, TEST[:1])])
def test_too_few_rows_are_refused(train, test, f) -> None:
    with pytest.raises(BadData, match="two training rows and two test rows"):
        linear_r2(f, f, train, test)


def test_a_quadratic_log_partition_needs_the_products(f) -> None:
    found = log_partition_r2(f, f.square().sum(1) + f[:, 0], TRAIN, TEST)
    assert found.directions == E
    assert found.quadratic > 0.99 > 0.6 > found.linear


def test_without_enough_rows_for_products_both_r2_are_the_linear_one(f) -> None:
    found = log_partition_r2(f, f[:, 0], TRAIN[:3], TEST)
    assert found.directions == 0 and found.quadratic == found.linear


def test_the_number_of_components_follows_the_rows() -> None:
    assert n_directions(6920, 576) == 48 and n_directions(3, 576) == 0
    for rows in (4, 40, 400, 4000):
        k = n_directions(rows, 10_000)
        assert k * (k + 1) / 2 <= rows / 4 and k <= 48
    assert n_directions(10**6, 5) == 5


def test_principal_components_are_white_on_training_rows_and_largest_last(f) -> None:
    stretched = f * torch.arange(1.0, E + 1)
    z = principal_components(stretched, TRAIN, 3)[TRAIN]
    torch.testing.assert_close(z.mean(0), torch.zeros(3).double(), atol=1e-12, rtol=0)
    covariance = z.T @ z / len(z)
    torch.testing.assert_close(covariance, torch.eye(3).double(), atol=1e-9, rtol=0)
    largest = stretched[TRAIN] - stretched[TRAIN].mean(0)
    axis = torch.linalg.svd(largest).Vh[0]
    projected = largest @ axis
    correlation = (projected * z[:, -1]).mean() / projected.square().mean().sqrt()
    assert abs(float(correlation)) == pytest.approx(1.0, abs=1e-6)


def test_pairwise_products_are_all_pairs_with_squares() -> None:
    z = torch.tensor([[2.0, 3.0, 5.0]])
    assert sorted(pairwise_products(z)[0].tolist()) == [4.0, 6.0, 9.0, 10.0, 15.0, 25.0]
