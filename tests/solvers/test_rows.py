"""Matrices read block by block: moments, scatter matrices and eigenvectors against dense ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Mismatch
from cutaway.solvers import rows as module
from cutaway.solvers.rows import (
    RowBlocks,
    Spectrum,
    as_row_blocks,
    check_finite,
    fold_scatters,
    folds_by_shape,
    group_moments,
    memory_slices,
    needs_scatter,
    solver_dtype,
    spectrum,
)


def matrix(n: int = 23, d: int = 4) -> torch.Tensor:
    made = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made[:, 1] = made[:, 1] * 1e-3 + 1e4
    return made


@given(size=st.integers(1, 30), marks=st.lists(st.booleans(), min_size=23, max_size=23))
def test_moments_do_not_depend_on_the_blocks(size, marks):
    x, group = matrix(), torch.tensor([marks, [True] * 23])
    group[0, 0] = True
    rows = RowBlocks(lambda: x.split(size), 23, 4)
    seen = group_moments(rows, group, scatter=True)
    for g in range(2):
        some = x[group[g]]
        torch.testing.assert_close(seen.group_mean[g], some.mean(0))
        torch.testing.assert_close(
            seen.group_variance[g], some.var(0, correction=0), rtol=1e-5, atol=1e-10
        )
    centred = x - x.mean(0)
    torch.testing.assert_close(seen.scatter, centred.T @ centred)


def test_taken_rows_are_in_the_order_of_the_index():
    x = matrix()
    index = torch.tensor([22, 0, 7, 7, 3])
    torch.testing.assert_close(RowBlocks(lambda: x.split(6), 23, 4).take(index), x[index])


@pytest.mark.parametrize("keep", [0, 1 << 30])
def test_standardised_rows_are_shifted_and_scaled(keep, monkeypatch):
    monkeypatch.setattr("cutaway.solvers.rows.MAX_CAST_BYTES", keep)
    x = matrix()
    shift, scale = x.mean(0), x.std(0)
    standard = as_row_blocks(x).standardised(shift, scale)
    torch.testing.assert_close(standard.to_tensor(), (x - shift) / scale)


def test_a_constant_column_has_standard_deviation_1():
    x = matrix()
    x[:, 2] = 0.1
    seen = group_moments(as_row_blocks(x), torch.ones(1, 23), scatter=False)
    assert float(seen.deviation[2]) == 1.0
    assert seen.scatter is None


@pytest.mark.parametrize("blocks", [[20], [23, 1], []])
def test_blocks_that_do_not_add_up_are_refused(blocks):
    rows = RowBlocks(lambda: [torch.ones(size, 4) for size in blocks], 23, 4)
    with pytest.raises(Mismatch, match="23 rows of 4 columns"):
        rows.to_tensor()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_counted(value):
    x = matrix()
    check_finite(x)
    x[3, 1] = x[3, 2] = x[9, 2] = value
    for given_as in (x, RowBlocks(lambda: x.split(4), 23, 4)):
        with pytest.raises(BadData, match=r"2 of 23 rows .* 2 of 4 columns"):
            check_finite(given_as)


def test_a_matrix_without_rows_is_refused():
    with pytest.raises(BadData, match="has no rows"):
        group_moments(as_row_blocks(torch.ones(0, 3)), torch.ones(1, 0), scatter=False)


def test_weighted_groups_have_weighted_moments():
    x, weight = matrix(), torch.rand(1, 23, generator=torch.Generator().manual_seed(1)).double()
    moments = group_moments(as_row_blocks(x), weight, scatter=False)
    share = weight[0] / weight.sum()
    mean = share @ x
    torch.testing.assert_close(moments.count, weight.sum(1))
    torch.testing.assert_close(moments.group_mean[0], mean)
    variance = share @ (x - mean).square()
    torch.testing.assert_close(moments.group_variance[0], variance, rtol=1e-5, atol=1e-10)


def test_a_tensor_becomes_blocks_in_the_dtype_of_the_solver():
    rows = as_row_blocks(matrix().float(), block=5)
    assert rows.dtype == torch.float64 and [len(b) for _, b in rows] == [5, 5, 5, 5, 3]
    assert all(b.dtype == torch.float64 for _, b in rows)
    assert as_row_blocks(rows) is rows
    assert as_row_blocks(rows, dtype=torch.float32).dtype == torch.float32
    assert solver_dtype(torch.device("cuda")) == torch.float32


def test_blocks_can_be_read_again():
    rows = as_row_blocks(matrix(), block=7)
    assert torch.equal(rows.to_tensor(), rows.to_tensor())


@given(marks=st.lists(st.booleans(), min_size=46, max_size=46))
def test_the_scatter_of_a_fold_is_that_of_its_rows(marks):
    x, folds = matrix() - matrix().mean(0), torch.tensor(marks).view(2, 23)
    found = fold_scatters(RowBlocks(lambda: x.split(5), 23, 4), folds)
    for gram, mine in zip(found, folds, strict=True):
        torch.testing.assert_close(gram, x[mine].T @ x[mine], rtol=1e-6, atol=1e-9)


def test_a_known_total_gives_the_same_scatters():
    x, folds = matrix(), torch.arange(23) % 5 != torch.arange(3)[:, None]
    rows = as_row_blocks(x, block=6)
    expected = fold_scatters(rows, folds)
    torch.testing.assert_close(fold_scatters(rows, folds, total=x.T @ x), expected)


@given(count=st.integers(0, 50), each=st.integers(0, 20), limit=st.integers(1, 100))
def test_slices_cover_all_items_and_fit_into_memory(count, each, limit):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_MATRIX_ELEMENTS", limit)
        slices = list(memory_slices(count, each))
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(count))
    assert all((s.stop - s.start) * each <= limit or s.stop - s.start == 1 for s in slices)


def test_folds_are_grouped_by_whether_they_have_more_rows_than_features():
    folds = torch.zeros(4, 10, dtype=torch.bool)
    for k, count in enumerate((10, 3, 4, 2)):
        folds[k, :count] = True
    groups = list(folds_by_shape(folds, 4))
    assert sorted(i for numbers, tall in groups if tall for i in numbers) == [0, 2]
    assert sorted(i for numbers, tall in groups if not tall for i in numbers) == [1, 3]


def test_very_wide_features_never_use_a_scatter_matrix(monkeypatch):
    monkeypatch.setattr(module, "MAX_SCATTER_WIDTH", 3)
    folds = torch.ones(2, 10, dtype=torch.bool)
    assert [tall for _, tall in folds_by_shape(folds, 4)] == [False]


def test_a_small_memory_limit_gives_one_fold_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "MAX_MATRIX_ELEMENTS", 1)
    folds = torch.ones(3, 10, dtype=torch.bool)
    assert [numbers for numbers, _ in folds_by_shape(folds, 4)] == [[0], [1], [2]]


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
