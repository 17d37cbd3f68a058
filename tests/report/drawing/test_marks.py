from xml.etree import ElementTree

import pytest

from cutaway.report.drawing import marks
from tests.report.drawing.examples import HOSTILE


@pytest.mark.parametrize(
    ("value", "short"), [(1.0, "1"), (0.25, "0.2"), (-0.01, "0"), (10, "10"), (-3.14, "-3.1")]
)
def test_coordinates_are_short(value: float, short: str) -> None:
    assert marks.num(value) == short


@pytest.mark.parametrize("content", HOSTILE)
def test_any_text_is_valid_and_inert(content: str) -> None:
    for svg in (marks.text("qst", 0, 0, content), marks.title(content)):
        root = ElementTree.fromstring(svg)
        assert not list(root)
        svg.encode("utf-8")


def test_text_comes_out_as_it_went_in() -> None:
    root = ElementTree.fromstring(marks.text("qst", 1, 2, "<b> & 'c'"))
    assert root.text == "<b> & 'c'" and root.get("class") == "qst"


def test_right_to_left_text_keeps_its_place() -> None:
    root = ElementTree.fromstring(marks.text("say", 0, 0, "مرحبا"))
    # The end of a line from right to left is at the left.
    assert (root.get("direction"), root.get("text-anchor")) == ("rtl", "end")
    middle = ElementTree.fromstring(marks.text("say", 0, 0, "مرحبا", anchor="middle"))
    assert middle.get("text-anchor") == "middle"


def test_a_title_keeps_its_lines() -> None:
    assert ElementTree.fromstring(marks.title("a\nb\x00")).text == "a\nb␀"


def test_a_box_may_be_given_from_right_to_left() -> None:
    assert marks.box(10, 4, 0, 2) == marks.box(4, 10, 0, 2) == "M4,0h6v2h-6z"


def test_shapes_of_a_class_are_one_path_in_the_order_of_the_classes() -> None:
    paths = marks.Paths("a", "b")
    for name in ("b", "a", "b"):
        paths.add(name, marks.box(0, 1, 0, 1))
    assert [p.get("class") for p in ElementTree.fromstring(f"<g>{paths.svg()}</g>")] == ["a", "b"]
    assert marks.Paths("a").svg() == ""
