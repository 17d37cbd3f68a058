from dataclasses import replace

import pytest

from cutaway.report.drawing.layout import columns_of, hues_of
from tests.report.drawing.examples import all_examples, example, unmeasured


@pytest.mark.parametrize(("scores", "columns"), [(0, 5), (2, 7), (4, 9), (5, 6), (8, 6)])
def test_more_than_four_scores_become_strips_in_one_column(scores: int, columns: int) -> None:
    found = columns_of(example(6, scores=scores))
    assert len(found) == columns
    assert ("rotate(-90" in found[1].body.svg) == (scores > 4)


def test_strips_are_20_pixels_wide() -> None:
    five, eight = (columns_of(example(6, scores=n))[1].width for n in (7, 8))
    assert eight - five == 20


@pytest.mark.parametrize("name", all_examples())
def test_every_column_has_a_text_per_layer(name: str) -> None:
    drawing = all_examples()[name]
    for column in columns_of(drawing):
        assert len(column.texts) == drawing.blocks + 1


def test_a_track_that_is_not_measured_is_an_outline_with_its_command() -> None:
    drawing = unmeasured(example(12), "fisher")
    column = columns_of(drawing)[-1]
    assert column.hue == "grey" and "dotted" in column.body.svg
    assert "not measured yet" in column.body.svg and "cutaway inject" in column.body.svg
    assert not any(column.body.keys)


def test_a_small_model_has_room_for_the_command() -> None:
    drawing = unmeasured(example(1))
    assert all("cutaway" in column.body.svg for column in columns_of(drawing)[1:])


def test_scores_have_colours_of_their_own() -> None:
    hues = hues_of(example(6, scores=4))
    assert len({hues[name] for name in ("tense", "sentiment", "plural", "topic")}) == 4
    assert set(hues_of(example(6, scores=8))) == {t.name for t in example(6, scores=8).tracks}


def test_the_first_column_is_the_stack() -> None:
    stack = columns_of(replace(example(6), tracks=()))
    assert [column.name for column in stack] == ["the model"]
    assert stack[0].texts[6].startswith("Layer 6\nword: Paris")
