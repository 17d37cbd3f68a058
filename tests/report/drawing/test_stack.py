import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from cutaway.report.drawing.geometry import STACK_WIDTH, Place, Rows
from cutaway.report.drawing.stack import draw_stack, shown_sentence, stack_header
from cutaway.report.drawing.text_width import width
from cutaway.report.drawing.values import Drawing, LayerWord
from tests.report.drawing.examples import HOSTILE, example


def texts(drawing: Drawing, name: str) -> list[str]:
    svg = draw_stack(drawing, Place(Rows(drawing.blocks + 1), STACK_WIDTH))
    root = ElementTree.fromstring(f"<g>{svg}</g>")
    return [t.text for t in root.iter("text") if t.get("class") == name]


@pytest.mark.parametrize("blocks", [1, 2, 6, 30, 80])
def test_every_layer_is_a_plate(blocks: int) -> None:
    drawing = example(blocks)
    svg = draw_stack(drawing, Place(Rows(blocks + 1), STACK_WIDTH))
    shells = re.search(r'class="shell edge" d="([^"]*)"', svg)[1]
    assert shells.count("z") == blocks
    assert re.search(r'class="base edge" d="([^"]*)"', svg)[1].count("z") == 1


def test_final_words_are_marked_and_darker_with_their_probability() -> None:
    words = tuple(
        LayerWord("x", p, final) for p, final in ((0.05, False), (0.1, True), (0.99, True))
    )
    svg = draw_stack(replace(example(2), words=words), Place(Rows(3), STACK_WIDTH))
    faces = set(re.findall(r'class="([of]\d) edge"', svg))
    assert faces == {"o0", "f0", "f4"}


def test_every_word_is_written_where_rows_are_high_enough() -> None:
    assert len(texts(example(30), "wrd") + texts(example(30), "wrf")) == 31


def test_in_low_rows_every_change_of_word_is_written() -> None:
    drawing = example(80)
    words = [w.text for w in drawing.words]
    changes = sum(a != b for a, b in zip([None, *words], words, strict=False))
    written = texts(drawing, "wrd") + texts(drawing, "wrf")
    assert changes <= len(written) < 81
    assert {"a", "of", "↵", "the", "Paris"} == set(written)


@pytest.mark.parametrize("word", HOSTILE)
def test_any_word_fits_into_its_cut(word: str) -> None:
    drawing = replace(example(2), words=tuple(LayerWord(word, 0.5, True) for _ in range(3)))
    assert all(width(t, 14, bold=True) < 100 for t in texts(drawing, "wrf"))


def test_a_probability_that_is_no_number_is_drawn_pale() -> None:
    words = (LayerWord("x", float("nan"), False), None)
    svg = draw_stack(replace(example(1), words=words), Place(Rows(2), STACK_WIDTH))
    assert 'class="o0 edge"' in svg


def test_the_header_counts_blocks_and_says_what_the_words_are() -> None:
    assert stack_header(example(1))[0] == "1 block, cut open"
    assert stack_header(example(30)) == (
        "30 blocks, cut open",
        "135 M parameters. In the cut: the word each layer would say next.",
    )
    masked = replace(example(6), facts={"kind": "masked"})
    assert "place of the mask" in stack_header(masked)[1]


@pytest.mark.parametrize("words", [(), (None,) * 7])
def test_without_words_nothing_is_said_about_them(words: tuple) -> None:
    drawing = replace(example(6), words=words)
    assert "In the cut" not in stack_header(drawing)[1]
    assert shown_sentence(drawing, 180, 12) == []
    assert texts(drawing, "wrd") == []


def test_a_short_sentence_is_shown_whole() -> None:
    assert " ".join(shown_sentence(example(), 180, 12)) == "“The capital of France is …”"
    assert shown_sentence(replace(example(), sentence=""), 180, 12) == []


@pytest.mark.parametrize("long", ["word " * 500 + "the end", "字" * 500, "x" * 900, "مرحبا " * 200])
def test_of_a_long_sentence_the_end_is_shown_in_two_lines(long: str) -> None:
    lines = shown_sentence(replace(example(), sentence=long), 180, 12)
    assert 1 <= len(lines) <= 2 and lines[0].startswith("“…")
    assert long.split()[-1][-5:] in lines[-1].replace(" ", "") or "the end" in " ".join(lines)
    assert all(width(line, 12, bold=True) <= 180 for line in lines)


def test_of_a_long_masked_sentence_the_mask_is_shown() -> None:
    text = "before " * 60 + "[MASK] " + "after " * 60
    drawing = replace(example(), sentence=text, facts={"kind": "masked"})
    assert "[MASK]" in " ".join(shown_sentence(drawing, 180, 12))
