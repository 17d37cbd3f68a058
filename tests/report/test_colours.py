"""The colours are valid, distinct, and the same names exist in both modes."""

import re

from cutaway.report.colours import MODE_COLOURS, NEUTRAL, PALETTE


def test_every_colour_is_a_hex_code_and_no_two_of_the_palette_are_equal() -> None:
    every = [*PALETTE, NEUTRAL, *(c for mode in MODE_COLOURS.values() for c in mode.values())]
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in every)
    assert len(set(PALETTE)) == len(PALETTE)


def test_both_modes_have_the_same_names() -> None:
    assert set(MODE_COLOURS["light"]) == set(MODE_COLOURS["dark"])
