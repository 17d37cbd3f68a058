import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from cutaway.report.drawing.header import bands_of, draw_header, spans
from cutaway.report.drawing.layout import Column, columns_of
from cutaway.report.drawing.text_width import width
from tests.report.drawing.examples import all_examples, example

SIZES = {"say": 12, "key": 11}


def texts(svg: str) -> list:
    return list(ElementTree.fromstring(f"<g>{svg}</g>").iter("text"))


def headers(columns: list[Column]) -> list[tuple[Column, str]]:
    bands = bands_of(columns)
    return [(c, draw_header(c, bands, s)) for c, s in zip(columns, spans(columns), strict=True)]


@pytest.mark.parametrize("name", all_examples())
def test_no_line_of_a_header_reaches_the_next_column(name: str) -> None:
    columns = columns_of(all_examples()[name])
    for column, svg in headers(columns):
        for text in texts(svg):
            kind = text.get("class")
            if kind in ("say", "key"):
                right = float(text.get("x")) + width(text.text, SIZES[kind])
                assert right <= column.width - 4, text.text


@pytest.mark.parametrize("name", all_examples())
def test_lines_of_a_header_do_not_overlap(name: str) -> None:
    columns = columns_of(all_examples()[name])
    top = bands_of(columns).top
    for _, svg in headers(columns):
        ys = sorted({float(text.get("y")) for text in texts(svg)})
        assert all(b - a >= 10 for a, b in pairwise(ys)), ys
        assert ys[-1] <= top


def test_neighbours_with_the_same_question_share_it() -> None:
    columns = columns_of(example(6, scores=3))
    found = spans(columns)
    assert found[1] == 3 * columns[1].width and found[2:4] == [0, 0]
    assert all(found[n] == columns[n].width for n in (0, 4, 5, 6, 7))
    questions = re.findall(r'class="qst"[^>]*>([^<]*)', "".join(s for _, s in headers(columns)))
    assert questions.count("What each layer knows") == 1


def test_a_narrow_screen_has_the_question_above_every_column() -> None:
    columns = columns_of(example(6))
    bands = bands_of(columns)
    second = draw_header(columns[2], bands, 0.0, narrow=True)
    assert '<g class="narrow">' in second and "What each layer knows" in second
    alone = draw_header(columns[3], bands, columns[3].width, narrow=True)
    assert "narrow" not in alone


def test_a_long_sentence_is_cut_and_a_short_one_is_whole() -> None:
    column = columns_of(example(6))[1]
    for sentence, cut in (("word " * 99, True), ("Short.", False)):
        ((_, svg),) = headers([replace(column, sentence=sentence)])
        said = " ".join(t.text for t in texts(svg) if t.get("class") == "say")
        assert said.endswith("…") == cut and (cut or said == sentence)


def test_the_legend_has_a_sample_and_a_name_for_each_mark() -> None:
    for column, svg in headers(columns_of(example(6, movement=True))):
        names = [t.text for t in texts(svg) if t.get("class") == "key"]
        assert names == [key.label for key in column.body.keys]
