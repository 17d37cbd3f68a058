import io
from dataclasses import replace

import pytest
from rich.cells import cell_len

from cutaway.console import SafeConsole
from cutaway.report.drawing.terminal import blocks, drawing_view, print_drawing
from cutaway.report.drawing.values import Drawing
from tests.report.drawing.examples import all_examples, example, unmeasured

EXAMPLES = all_examples()


def shown(drawing: Drawing, width: int = 160, **options) -> list[str]:
    out = io.StringIO()
    SafeConsole(file=out, width=width, **options).print(drawing_view(drawing, width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(cell_len(line) for line in shown(EXAMPLES[name], width)) <= width


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", EXAMPLES)
def test_there_is_a_line_per_layer_from_the_last_one_down(name: str, width: int) -> None:
    drawing = EXAMPLES[name]
    lines = [line[1:].split() for line in shown(drawing, width)]
    numbers = [int(line[0]) for line in lines if line and line[0].isdigit()]
    wanted = list(range(drawing.blocks, -1, -1))
    assert numbers[: len(wanted)] == wanted


def test_a_line_has_the_word_and_a_bar_with_its_number_for_each_track() -> None:
    lines = shown(example(6))
    heading = next(line for line in lines if "tense" in line)
    for name in ("word", "tense", "sentiment", "agreement", "linearity", "skill", "fisher text"):
        assert name in heading
    top = next(line for line in lines if line.startswith(" 6 "))
    assert "Paris" in top and "100%" in top and "█" in top
    # The tracks begin below their names.
    assert top[heading.index("agreement")] == "█"


@pytest.mark.parametrize("width", [60, 80])
def test_tracks_that_do_not_fit_are_named(width: int) -> None:
    text = " ".join(shown(example(30, scores=4), width))
    assert "too narrow" in text and "fisher skill" in text
    assert "too narrow" not in " ".join(shown(example(30), 160))


def test_what_was_not_measured_or_trained_differs_from_zero() -> None:
    lines = shown(EXAMPLES["gaps"])
    assert "· not measured  × not trained" in " ".join(lines)
    row = next(line for line in lines if line.startswith("  1 "))
    assert row.count("·") >= 5 and "█" not in row and "0.00" not in row and "0%" not in row


def test_a_missing_track_is_named_with_its_command() -> None:
    text = " ".join(shown(unmeasured(example(6), "fisher")))
    assert "fisher is not measured yet: cutaway inject" in text


def test_observed_layers_are_marked_and_explained() -> None:
    lines = shown(example(30))
    assert [line[1:3] for line in lines if line.startswith("▌1")] == ["13", "12"]
    assert any(line.startswith("▌ Layers 12 and 13: tense") for line in lines)


def test_there_are_colours_in_a_terminal_only() -> None:
    assert not any("\x1b" in line for line in shown(EXAMPLES["hostile"]))
    coloured = shown(example(6), force_terminal=True, color_system="truecolor")
    assert any("\x1b[38;2;13;132;198m█" in line for line in coloured)


def test_without_words_there_is_no_sentence_and_no_column_for_them() -> None:
    text = " ".join(shown(replace(example(6), words=(None,) * 7)))
    assert "capital of France" not in text and " word " not in text and "tense" in text


def test_of_a_long_sentence_the_end_is_shown() -> None:
    lines = shown(replace(example(6), sentence="start " + "word " * 500 + "the end"), 80)
    text = " ".join(lines[:5])
    assert "the end”" in text and "start" not in text


@pytest.mark.parametrize(
    ("share", "bar"), [(0, "▏"), (0.5, "██"), (1, "████"), (0.53, "██▏"), (7, "████")]
)
def test_bars_are_drawn_in_eighths(share: float, bar: str) -> None:
    assert blocks(share, 4) == bar


def test_printing_goes_to_stdout(capsys) -> None:
    print_drawing(example(2))
    assert "What is inside SmolLM2-135M?" in capsys.readouterr().out
