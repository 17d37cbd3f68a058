"""Scatter matrices of folds, and groups of folds that fit into memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.solvers import scatter
from cutaway.solvers.rows import RowBlocks, as_row_blocks
from cutaway.solvers.scatter import fold_scatters, folds_by_shape, memory_slices


def matrix(n: int = 23, d: int = 4) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


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
        patch.setattr(scatter, "MAX_MATRIX_ELEMENTS", limit)
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
    monkeypatch.setattr(scatter, "MAX_SCATTER_WIDTH", 3)
    folds = torch.ones(2, 10, dtype=torch.bool)
    assert [tall for _, tall in folds_by_shape(folds, 4)] == [False]


def test_a_small_memory_limit_gives_one_fold_at_a_time(monkeypatch):
    monkeypatch.setattr(scatter, "MAX_MATRIX_ELEMENTS", 1)
    folds = torch.ones(3, 10, dtype=torch.bool)
    assert [numbers for numbers, _ in folds_by_shape(folds, 4)] == [[0], [1], [2]]
