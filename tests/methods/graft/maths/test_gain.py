"""The relative gain, and the smallest size that keeps enough of it."""

import math

import numpy as np
import pytest

from cutaway.measure.intervals import ratio
from cutaway.measure.shared_rows import BlockScores
from cutaway.methods.graft.maths.gain import find_smallest_size, kept_gain, relative_gain


def test_the_smallest_size_that_keeps_enough_is_found() -> None:
    asked = []
    found = find_smallest_size(100_000, lambda n: asked.append(n) or min(1.0, n / 2000), 0.95)
    assert found.reached
    assert 1900 <= found.size <= 1.06 * 1900
    assert len(asked) == len(set(asked)) < 25
    assert find_smallest_size(10, lambda n: 1.0, 0.9).size == 1
    never = find_smallest_size(50, lambda n: 0.2, 0.9)
    assert (never.size, never.reached) == (50, False)


def test_relative_gain_is_0_at_the_base_and_1_at_the_tuned_model() -> None:
    assert relative_gain(0.5, 0.5, 0.9) == 0.0
    assert relative_gain(0.9, 0.5, 0.9) == 1.0
    assert relative_gain(0.6, 0.5, 0.5) != relative_gain(0.6, 0.5, 0.5)


def by_blocks(mean: float, seed: int) -> BlockScores:
    blocks = mean + 0.05 * np.random.default_rng(seed).normal(size=20)
    return BlockScores(tuple(blocks), (float(blocks.mean()),))


def test_the_kept_gain_has_fiellers_interval() -> None:
    graft, base, tuned = by_blocks(0.8, 0), by_blocks(0.5, 1), by_blocks(0.9, 2)
    found = kept_gain(graft, base, tuned)
    gains = [np.subtract(one.blocks, base.blocks) for one in (graft, tuned)]
    assert found.mean == pytest.approx(relative_gain(graft.mean, base.mean, tuned.mean))
    assert (found.low, found.high) == pytest.approx((ratio(*gains).low, ratio(*gains).high))
    assert 0.5 < found.low < found.mean < found.high < 1.0


@pytest.mark.parametrize("tuned", [0.505, 0.4])
def test_a_gain_that_is_not_shown_has_no_ends(tuned: float) -> None:
    found = kept_gain(by_blocks(0.6, 0), by_blocks(0.5, 1), by_blocks(tuned, 2))
    assert math.isnan(found.low) and math.isnan(found.high)
