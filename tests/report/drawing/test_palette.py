import itertools
import re

import pytest

from cutaway.report.drawing import palette
from cutaway.report.theme import PALETTE
from tests.report.drawing.examples import all_examples

MODES = ("light", "dark")


def test_contrast_is_that_of_the_web_guidelines() -> None:
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert palette.contrast("#ffffff", "#777777") == palette.contrast("#777777", "#ffffff")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", palette.TEXTS)
def test_every_text_can_be_read_on_all_that_it_is_drawn_on(name: str, mode: str) -> None:
    of = palette.colours(mode)
    colour, backgrounds = palette.TEXTS[name]
    inks = [f"{hue}-text" for hue in palette.HUES] if colour == "hue" else [colour]
    for ink, background in itertools.product(inks, backgrounds):
        assert palette.contrast(of[ink], of[background]) >= 4.5, (ink, background)


@pytest.mark.parametrize("mode", MODES)
def test_texts_of_the_page_can_be_read(mode: str) -> None:
    of = palette.colours(mode)
    for ink, background in (("ink", "ghost"), ("blue-text", "background"), ("soft", "background")):
        assert palette.contrast(of[ink], of[background]) >= 4.5


@pytest.mark.parametrize("mode", MODES)
def test_the_colour_of_every_text_class_is_the_one_in_the_rules(mode: str) -> None:
    of, rules = palette.colours(mode), palette.colour_rules(mode, ".x")
    for name, (colour, _) in palette.TEXTS.items():
        if colour != "hue":
            assert re.search(rf"\.x \.{name}\{{fill:{of[colour]}\}}", rules), name
    for hue in palette.HUES:
        assert f".x .{hue} .mth,.x .{hue} .lbl{{fill:{of[f'{hue}-text']}}}" in rules


@pytest.mark.parametrize("name", all_examples())
def test_every_text_has_a_known_class(name: str) -> None:
    from cutaway.report.drawing.svg import svg_text

    used = set(re.findall(r'<text class="([^"]*)"', svg_text(all_examples()[name])))
    assert used <= set(palette.TEXTS) and "num" in used


def test_marks_have_the_colours_of_all_figures() -> None:
    assert set(PALETTE) < set(palette.HUES.values())


def test_a_mix_goes_from_one_colour_to_the_other() -> None:
    assert palette.mix("#000000", "#ffffff", 0) == "#000000"
    assert palette.mix("#000000", "#ff8000", 1) == "#ff8000"
    assert palette.mix("#000000", "#ffffff", 0.5) == "#808080"


def test_a_readable_colour_is_left_as_it_is() -> None:
    assert palette.readable("#00008b", ("#ffffff",), "#000000") == "#00008b"
    moved = palette.readable("#ffff00", ("#ffffff",), "#000000")
    assert moved != "#ffff00" and palette.contrast(moved, "#ffffff") >= 4.5
