from itertools import pairwise

import pytest

from cutaway.report.drawing.geometry import (
    MAX_COLUMN,
    MIN_COLUMN,
    PICTURE_WIDTH,
    STACK_WIDTH,
    Rows,
    Scale,
    column_width,
    round_ticks,
    spread,
)


@pytest.mark.parametrize("count", [2, 3, 7, 17, 31, 61, 81, 127])
def test_rows_fill_the_plot_from_the_last_layer_down(count: int) -> None:
    rows = Rows(count)
    assert rows.edges(count - 1, 1)[0] == pytest.approx(0)
    assert rows.edges(0, 1)[1] == pytest.approx(rows.total)
    assert rows.middle(0) - rows.middle(1) == pytest.approx(rows.height)
    assert rows.height >= 9 and rows.total >= 150


@pytest.mark.parametrize("count", [2, 7, 31, 32, 61, 81, 127])
def test_layer_numbers_never_touch_and_include_both_ends(count: int) -> None:
    rows = Rows(count)
    shown = rows.numbered()
    assert shown[0] == 0 and shown[-1] == count - 1
    gaps = [rows.middle(a) - rows.middle(b) for a, b in pairwise(shown)]
    assert min(gaps) >= 13


def test_columns_fit_into_the_picture_as_long_as_they_are_wide_enough() -> None:
    for n in range(1, 9):
        assert STACK_WIDTH + n * column_width(n) <= PICTURE_WIDTH
    assert column_width(1) == MAX_COLUMN and column_width(30) == MIN_COLUMN
    assert column_width(6, 1000) < column_width(6)


def test_a_scale_maps_its_ends_to_its_edges_and_keeps_values_inside() -> None:
    scale = Scale(0.5, 1.0, 10, 110)
    assert [scale.x(v) for v in (0.5, 0.75, 1.0, 0.1, 7)] == [10, 60, 110, 10, 110]
    assert Scale(0, 1, 0, 100, root=True).x(0.25) == 50
    assert Scale(0, 1, 50, 0, root=True).x(1.0) == 0


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.5, 1]), (0, 0.022, [0, 0.01, 0.02]), (0, 60, [0, 50]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert round_ticks(low, high, 3) == pytest.approx(ticks)


def test_labels_that_would_touch_an_earlier_one_are_left_out() -> None:
    places = [(0, "a"), (100, "b"), (8, "c"), (50, "d")]
    assert spread(places, [10] * 4) == [(0, "a"), (100, "b"), (50, "d")]
