import pytest

from cutaway.report.drawing.text_width import (
    clean,
    fit,
    is_right_to_left,
    shown_word,
    width,
    wrap,
)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" Paris", "Paris"), ("", "␣"), ("   ", "␣"), ("\n", "↵"), ("\t", "⇥"), ("\n\n", "↵↵"),
        ("\x00", "␀"), ("\x1b[31m", "␛[31m"), ("\u202eevil", "\ufffdevil"), ("\ud800", "\ufffd"),
        ("\ufffe", "\ufffd"), ("<b>", "<b>"), ("a  b", "a b"),
        ("\N{WOMAN}\u200d\N{GIRL}", "\N{WOMAN}\u200d\N{GIRL}"),
    ],
)  # fmt: skip
def test_a_token_is_shown_as_a_word(token: str, shown: str) -> None:
    assert shown_word(token) == shown


def test_clean_text_has_no_control_characters_and_keeps_letters() -> None:
    assert clean("a\x00b\nc\u2028d é 日 م") == "a␀b c\ufffdd é 日 م"


def test_direction_is_that_of_the_first_letter() -> None:
    assert is_right_to_left("مرحبا world") and is_right_to_left("1, 2 שלום")
    assert not is_right_to_left("world مرحبا") and not is_right_to_left("42")


def test_wide_and_bold_letters_take_more_room() -> None:
    assert width("MMM", 12) > width("iii", 12)
    assert width("word", 12, bold=True) > width("word", 12)
    assert width("日本", 10) == 20 and width("e\u0301", 12) == width("e", 12)
    assert width("iiii", 10, monospaced=True) == width("MMMM", 10, monospaced=True)
    assert width("word", 24) == 2 * width("word", 12)


def test_a_text_that_does_not_fit_is_cut_with_an_ellipsis() -> None:
    assert fit("short", 100, 12) == "short"
    cut = fit("x" * 300, 100, 12)
    assert cut.endswith("…") and width(cut, 12) <= 100 and len(cut) > 10


@pytest.mark.parametrize("text", ["one two three four five six " * 4, "x" * 300, "日本語" * 50, ""])
def test_wrapped_lines_fit_and_are_at_most_as_many_as_asked_for(text: str) -> None:
    lines = wrap(text, 120, 12, 3)
    assert len(lines) <= 3 and all(width(line, 12) <= 120 for line in lines)
    assert lines[-1].endswith("…") if text else not lines


def test_wrapping_loses_no_word() -> None:
    text = "Half of the final words are there from layer 20 on"
    assert " ".join(wrap(text, 120, 12, 9)) == text


def test_a_number_stays_with_its_percent_sign() -> None:
    for space in range(40, 160, 3):
        assert not any(line.startswith("%") for line in wrap("it keeps 78 % of it", space, 12, 9))
