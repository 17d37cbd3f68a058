"""Tests of unfinished runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, Missing
from cutaway.store.progress import Progress
from tests.store.samples import DISK

CELL = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text()
ROWS = st.lists(st.dictionaries(st.text(min_size=1), CELL, max_size=4), max_size=3)


@DISK
@given(st.dictionaries(st.text(), ROWS, max_size=5))
def test_rows_are_restored_exactly_and_sorted_by_key(tmp_path_factory, pieces):
    kept = Progress(tmp_path_factory.mktemp("pieces"))
    for key, rows in pieces.items():
        kept.put(key, rows)
    assert kept.done() == set(pieces)
    assert repr(kept.rows()) == repr([row for key in sorted(pieces) for row in pieces[key]])


def test_the_order_of_rows_is_the_one_asked_for(tmp_path):
    kept = Progress(tmp_path)
    kept.put("b", [{"x": 2}])
    kept.put("a", [{"x": 1}])
    assert kept.rows(["b", "a"]) == [{"x": 2}, {"x": 1}]


def test_numpy_numbers_become_plain_ones(tmp_path):
    Progress(tmp_path).put("a", [{"x": np.float64("nan"), "y": np.int32(3), "z": np.True_}])
    (row,) = Progress(tmp_path).rows()
    assert math.isnan(row["x"])
    assert (row["y"], row["z"]) == (3, True)


def test_details_are_kept_beside_the_rows_in_the_order_of_the_pieces(tmp_path):
    pieces = Progress(tmp_path)
    pieces.put("a", [{"x": 1}], details=[{"curve": [1, 2]}, {"note": "n"}])
    pieces.put("b", [], details=[{"curve": [3]}])
    assert pieces.details(["b", "a"]) == [{"curve": [3]}, {"curve": [1, 2]}, {"note": "n"}]
    assert pieces.rows() == [{"x": 1}]


def test_nothing_done_is_nothing(tmp_path):
    kept = Progress(tmp_path / "not there")
    assert kept.done() == set()
    assert kept.rows() == []
    kept.discard()
    assert list(tmp_path.iterdir()) == []


def test_the_last_word_on_a_piece_counts(tmp_path):
    kept = Progress(tmp_path)
    kept.put("a", [{"x": 1}])
    kept.put("a", [{"x": 2}])
    assert kept.rows() == [{"x": 2}]


def test_a_damaged_piece_is_not_done_and_the_others_are(tmp_path):
    kept = Progress(tmp_path)
    kept.put("a", [{"x": 1.25}])
    (path,) = tmp_path.iterdir()
    kept.put("b", [{"x": 2}])
    path.write_text(path.read_text().replace("1.25", "1.26"))
    assert kept.done() == {"b"}


def test_a_half_written_piece_of_a_killed_process_is_not_seen(tmp_path):
    (tmp_path / f"abc.json.tmp-00000000-1-{'0' * 32}").write_text('{"pieces": {"a')
    assert Progress(tmp_path).done() == set()


def test_a_piece_that_is_not_done_is_named(tmp_path):
    with pytest.raises(Missing, match="'b'"):
        Progress(tmp_path).rows(["b"])


@pytest.mark.parametrize("value", [[1], {"x": 1}, (1, 2)])
def test_a_cell_with_several_values_is_refused(tmp_path, value):
    with pytest.raises(BadData, match="tidy"):
        Progress(tmp_path).put("a", [{"x": value}])


def test_discarding_leaves_nothing(tmp_path):
    kept = Progress(tmp_path / "x.partial")
    kept.put("a", [{"x": 1}])
    kept.discard()
    assert list(tmp_path.iterdir()) == []
