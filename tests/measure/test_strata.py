"""Cuts in which every part looks like the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData
from cutaway.measure.strata import allocate, nested_order, shuffle, strata, stratified_cut

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
FRACTIONS = st.sampled_from([(0.7, 0.1, 0.2), (0.875, 0.125), (0.5, 0.25, 0.25), (0.1, 0.3, 0.6)])


@given(counts=COUNTS, fractions=FRACTIONS)
def test_each_cell_is_its_share_rounded_and_no_row_is_lost(counts, fractions):
    counts = np.array(counts)
    cells = allocate(counts, fractions)
    exact = counts[:, None] * np.array(fractions)
    assert (np.abs(cells - exact) < 1 + 1e-9).all()
    assert (cells.sum(axis=1) == counts).all()
    assert (cells[:, 0] >= 1).all()


@given(counts=st.lists(st.integers(8, 60), min_size=1, max_size=12))
def test_the_parts_keep_to_their_fractions_over_all_strata(counts):
    cells = allocate(np.array(counts), (0.7, 0.1, 0.2))
    exact = sum(counts) * np.array([0.7, 0.1, 0.2])
    assert (np.abs(cells.sum(axis=0) - exact) <= 1).all()


def test_round_numbers_are_cut_exactly():
    assert allocate(np.array([10, 30, 100]), (0.7, 0.1, 0.2)).tolist() == [
        [7, 1, 2],
        [21, 3, 6],
        [70, 10, 20],
    ]


@given(counts=COUNTS, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_cut_holds_each_row_once_and_each_stratum_at_its_share(counts, seed):
    groups = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(groups))
    parts = stratified_cut(rows, groups, (0.7, 0.1, 0.2), np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    for part, share in zip(parts, (0.7, 0.1, 0.2), strict=True):
        found = np.bincount(groups[part], minlength=len(counts))
        assert (np.abs(found - share * np.array(counts)) < 1 + 1e-9).all()


@given(counts=st.lists(st.integers(2, 40), min_size=2, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_beginning_of_a_nested_order_looks_like_the_whole(counts, seed):
    groups = np.repeat(np.arange(len(counts)), counts)
    order = nested_order(np.arange(len(groups)), groups, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(groups)))
    share = np.array(counts) / len(groups)
    for size in range(len(counts), len(groups) + 1):
        found = np.bincount(groups[order[:size]], minlength=len(counts))
        assert found.min() >= 1
        # The row of each class that comes first can push aside one of each other class.
        assert (np.abs(found - size * share) <= len(counts)).all()


def test_the_order_of_a_seed_is_pinned():
    rng = np.random.Generator(np.random.PCG64(7))
    assert shuffle(np.arange(8), rng).tolist() == [6, 3, 4, 0, 2, 7, 5, 1]


def test_multilabel_rows_count_under_their_rarest_label():
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1]])
    assert strata(labels, "multilabel").tolist() == [2, 0, 1, 3, 2]


def test_regression_rows_count_under_equal_bins_of_their_rank():
    labels = np.random.default_rng(0).lognormal(size=200)
    bins = strata(labels, "regression")
    assert np.bincount(bins).tolist() == [20] * 10
    assert (np.diff(bins[np.argsort(labels)]) >= 0).all()


@pytest.mark.parametrize("n", [1, 2, 9, 23])
def test_few_regression_rows_have_few_bins(n):
    assert np.bincount(strata(np.arange(n) + 0.5, "regression")).min() >= min(n, 5)


def test_labels_that_are_no_numbers_and_plain_text_are_refused():
    with pytest.raises(BadData, match="2 labels are not finite"):
        strata(np.array([0.1, np.nan, np.inf]), "regression")
    with pytest.raises(BadData, match="'text' have no labels"):
        strata(np.array([0, 1]), "text")
