import re
from dataclasses import replace

import pytest

from cutaway.report.drawing.geometry import STRIP, Place, Rows
from cutaway.report.drawing.strips import draw_strips, strips_sentence
from tests.report.drawing.examples import score_track

PLACE = Place(Rows(3), 200)


def cells(svg: str, name: str) -> int:
    found = re.search(rf'class="{name}" d="([^"]*)"', svg)
    return found[1].count("z") if found else 0


def test_a_strip_has_a_cell_per_layer_darker_with_the_score() -> None:
    track = replace(
        score_track("t", 3, 0.5), series={"value": (0.5, 0.74, 1.0)}, baseline=0.5, top=1.0
    )
    svg = draw_strips([track] * 5, PLACE).svg
    assert [cells(svg, f"h{n}") for n in range(5)] == [5, 0, 5, 0, 5]


def test_below_the_baseline_and_not_measured_look_different() -> None:
    track = replace(score_track("t", 3, 0.5), series={"value": (0.2, None, 0.9)}, baseline=0.5)
    body = draw_strips([track], PLACE)
    assert (cells(body.svg, "below faint"), cells(body.svg, "none")) == (1, 1)
    assert [key.label for key in body.keys] == [
        "baseline to best",
        "below",
        "not measured",
    ]


def test_a_track_without_values_is_a_dotted_strip() -> None:
    track = replace(score_track("t", 3, 0.5), series={})
    svg = draw_strips([score_track("a", 3, 0.5), track], PLACE).svg
    assert cells(svg, "dotted") == 1
    assert f"M{STRIP + 1},0.5" in svg


@pytest.mark.parametrize("name", ["t", "a-very-long-name-of-a-task", "<script>"])
def test_names_are_written_upwards(name: str) -> None:
    svg = draw_strips([score_track(name, 3, 0.5)], PLACE).svg
    assert "rotate(-90" in svg and "<script>" not in svg


def test_the_sentence_counts_the_tasks() -> None:
    assert strips_sentence([score_track("t", 3, 0.5)] * 7).startswith("7 tasks")
