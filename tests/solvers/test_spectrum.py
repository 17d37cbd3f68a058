"""The preconditioner of logistic regression equals the dense inverse."""

import pytest
import torch

from cutaway.solvers import spectrum as module
from cutaway.solvers.rows import as_row_blocks, group_moments
from cutaway.solvers.spectrum import Spectrum, needs_scatter, spectrum


def centred(n: int, d: int) -> torch.Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).double()
    return x - x.mean(0)


def spectrum_of(x: torch.Tensor, scale: torch.Tensor | None = None, **options) -> Spectrum:
    rows, d = as_row_blocks(x), x.shape[1]
    moments = group_moments(rows, torch.ones(1, len(x)), scatter=d <= len(x))
    return spectrum(rows, moments, torch.ones(d).double() if scale is None else scale, **options)


@pytest.mark.parametrize(("n", "d"), [(50, 7), (7, 20)])
def test_solving_equals_the_dense_inverse(n, d):
    x = centred(n, d)
    found = spectrum_of(x)
    gradient = torch.randn(3, 2, d, generator=torch.Generator().manual_seed(1)).double()
    curvature, penalty = torch.rand(3, 2).double() + 0.1, torch.tensor([0.01, 1.0, 30.0]).double()
    for p in range(3):
        for k in range(2):
            dense = curvature[p, k] * x.T @ x / n + penalty[p] * torch.eye(d)
            expected = torch.linalg.solve(dense, gradient[p, k])
            solved = found.solve(gradient, curvature, penalty)[p, k]
            torch.testing.assert_close(solved, expected, rtol=1e-6, atol=1e-8)


def test_eigenvectors_are_orthonormal_and_reproduce_the_covariance():
    x = centred(40, 6)
    found = spectrum_of(x)
    assert found.complete
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(6).double())
    covariance = found.vectors @ torch.diag(found.values) @ found.vectors.T
    torch.testing.assert_close(covariance, x.T @ x / 40)


def test_a_wide_matrix_has_the_eigenvectors_of_its_rows():
    x = centred(7, 20)
    found = spectrum_of(x)
    assert not found.complete and found.vectors.shape == (20, 6)
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(6).double())
    torch.testing.assert_close((x @ found.vectors) @ found.vectors.T, x)


def test_fewer_rows_give_fewer_eigenvectors():
    assert spectrum_of(centred(30, 50), max_rows=8).vectors.shape == (50, 8)


def test_the_scale_divides_the_features():
    x, scale = centred(40, 3), torch.tensor([1.0, 2.0, 10.0]).double()
    rows = as_row_blocks(x / scale)
    moments = group_moments(as_row_blocks(x), torch.ones(1, 40), scatter=True)
    found = spectrum(rows, moments, scale)
    covariance = found.vectors @ torch.diag(found.values) @ found.vectors.T
    torch.testing.assert_close(covariance, (x / scale).T @ (x / scale) / 40)


def test_the_scatter_matrix_is_used_for_tall_and_narrow_features(monkeypatch):
    assert needs_scatter(as_row_blocks(torch.ones(5, 5)))
    assert not needs_scatter(as_row_blocks(torch.ones(4, 5)))
    monkeypatch.setattr(module, "MAX_SCATTER_WIDTH", 4)
    assert not needs_scatter(as_row_blocks(torch.ones(9, 5)))
