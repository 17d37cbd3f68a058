"""Which rows train together."""

import numpy as np
import pytest

from cutaway.training.batch_order import BatchOrder, make_batch_order

LENGTHS = tuple(np.random.default_rng(0).integers(3, 60, size=200).tolist())


@pytest.mark.parametrize(("rows", "batch"), [(200, 16), (7, 16), (32, 8), (33, 8)])
def test_every_row_comes_once_in_each_pass(rows: int, batch: int) -> None:
    order = BatchOrder(LENGTHS[:rows], batch, seed=3)
    for first in (0, order.steps_per_epoch):
        seen = np.concatenate([order(first + i) for i in range(order.steps_per_epoch)])
        assert sorted(seen.tolist()) == list(range(rows))


def test_a_step_has_the_same_rows_whatever_came_before() -> None:
    one, other = BatchOrder(LENGTHS, 16, seed=3), BatchOrder(LENGTHS, 16, seed=3)
    later = one(57)
    for step in range(60):
        other(step)
    assert later.tolist() == other(57).tolist()
    assert later.tolist() != BatchOrder(LENGTHS, 16, seed=4)(57).tolist()


def test_batches_waste_little_on_padding_and_change_from_pass_to_pass() -> None:
    order = BatchOrder(LENGTHS, 16, seed=0)
    lengths = np.asarray(LENGTHS)
    batches = [order(step) for step in range(order.steps_per_epoch)]
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    blind = [np.arange(i, min(i + 16, 200)) for i in range(0, 200, 16)]
    plain = sum(len(rows) * lengths[rows].max() for rows in blind)
    assert padded - lengths.sum() < 0.5 * (plain - lengths.sum())
    later = {tuple(sorted(order(order.steps_per_epoch + i))) for i in range(order.steps_per_epoch)}
    assert not later & {tuple(sorted(rows)) for rows in batches}


def test_rows_of_tokens_give_their_lengths() -> None:
    assert make_batch_order([[1, 2], [3]], batch=4, seed=1) == BatchOrder((2, 1), 4, 1)


def test_without_a_window_a_batch_is_a_plain_draw_of_all_lengths() -> None:
    order = make_batch_order([[0] * (1 + i % 40) for i in range(1_600)], 160, seed=3, window=1)
    means = [np.mean([1 + i % 40 for i in order(step)]) for step in range(10)]
    assert max(means) - min(means) < 6
    sorted_ones = make_batch_order([[0] * (1 + i % 40) for i in range(1_600)], 160, seed=3)
    apart = [np.mean([1 + i % 40 for i in sorted_ones(step)]) for step in range(10)]
    assert max(apart) - min(apart) > 30
