"""Tests of rows put back in order."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.store.gather_rows import _expand_ranges, _take


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_spreading_is_one_range_after_the_other(pairs):
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    lengths = np.array([length for _, length in pairs], dtype=np.int64)
    expected = [place for start, length in pairs for place in range(start, start + length)]
    assert _expand_ranges(starts, lengths).tolist() == expected


def test_a_whole_block_is_taken_without_a_copy():
    block = torch.rand(4, 2)
    assert _take(block, np.arange(4)).data_ptr() == block.data_ptr()
    assert torch.equal(_take(block, np.array([3, 2, 1, 0])), block.flip(0))
    assert torch.equal(_take(block, np.array([1, 2])), block[1:3])
