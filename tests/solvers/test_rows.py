"""Matrices read block by block."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Mismatch
from cutaway.solvers import RowBlocks, as_row_blocks, check_finite, group_moments
from cutaway.solvers.rows import solver_dtype


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
