from itertools import pairwise
from xml.etree import ElementTree

import pytest

from cutaway.report.drawing.axes import axis, decimal, percent, rounded_up, share_axis
from cutaway.report.drawing.geometry import Place, Rows, Scale
from cutaway.report.drawing.text_width import width

PLACE = Place(Rows(7), 178)


def labels(svg: str) -> list[tuple[float, str]]:
    texts = ElementTree.fromstring(f"<g>{svg}</g>").iter("text")
    return sorted((float(t.get("x")), t.text) for t in texts)


def test_labels_stay_in_the_column_and_apart() -> None:
    found = labels(axis(PLACE, Scale(0.5, 1, 0, 158), [0.5, 1.0, 0.75, 0.501], decimal))
    assert [label for _, label in found] == ["0.5", "0.75", "1"]
    edges = [(x - width(t, 11) / 2, x + width(t, 11) / 2) for x, t in found]
    assert edges[0][0] >= -0.1 and edges[-1][1] <= PLACE.right + 0.1
    assert all(a[1] < b[0] for a, b in pairwise(edges))


@pytest.mark.parametrize("high", [0.004, 0.03, 0.4, 1.0])
def test_labels_of_a_square_root_axis_are_at_their_true_places(high: float) -> None:
    scale = Scale(0, high, 0, 158, root=True)
    for x, label in labels(share_axis(PLACE, scale)):
        value = float(label.removesuffix(" %")) / 100
        assert abs(scale.x(value) - x) <= width(label, 11) / 2 + 0.1


@pytest.mark.parametrize("high", [0.02, 0.4, 1.0])
def test_labels_of_both_wings_leave_the_middle_free(high: float) -> None:
    wings = [
        labels(share_axis(PLACE, Scale(0, high, 79, end, root=True), line=False))
        for end in (0, 158)
    ]
    assert all(x + width(t, 11) / 2 < 79 for x, t in wings[0]) and wings[0]
    assert all(x - width(t, 11) / 2 > 79 for x, t in wings[1]) and wings[1]


@pytest.mark.parametrize("value", [1e-7, 0.0123, 0.5, 0.81, 1, 7.7, 950])
def test_the_end_of_an_axis_is_round_and_not_below_the_value(value: float) -> None:
    assert value <= rounded_up(value) * (1 + 1e-9) and rounded_up(value) <= 1.7 * value
    assert rounded_up(0) == 1


def test_numbers_on_axes_are_short() -> None:
    assert [percent(v) for v in (0, 0.005, 0.3, 1)] == ["0", "0.5 %", "30 %", "100 %"]
    assert [decimal(v) for v in (0.53, 1.0, -0.001, 0.7)] == ["0.53", "1", "0", "0.7"]
