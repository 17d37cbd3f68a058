import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from cutaway.console import SafeConsole
from cutaway.report import formats
from cutaway.report.drawing.layer_values import SHARES, value_at
from cutaway.report.drawing.page import html_text
from cutaway.report.drawing.svg import svg_text
from cutaway.report.drawing.terminal import drawing_view
from cutaway.report.drawing.values import SERIES, Drawing, LayerWord, Track
from tests.report.drawing.examples import all_examples, example

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = all_examples()
MARKUP = {
    f"{SVG}{tag}" for tag in ("svg", "g", "title", "desc", "style", "rect", "path", "text")
}  # fmt: skip


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(svg_text(drawing))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_picture_is_valid_and_has_no_markup_but_its_own(name: str) -> None:
    root = parsed(EXAMPLES[name])
    assert {element.tag for element in root.iter()} <= MARKUP
    svg_text(EXAMPLES[name]).encode("utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_picture_runs_nothing_and_asks_for_nothing(name: str) -> None:
    for element in parsed(EXAMPLES[name]).iter():
        assert not [key for key in element.attrib if key.startswith("on") or "href" in key]
    assert "url(" not in svg_text(EXAMPLES[name]) and "@import" not in svg_text(EXAMPLES[name])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_title_of_a_layer_has_all_its_numbers(name: str) -> None:
    drawing = EXAMPLES[name]
    titles = {
        int(hit.get("data-layer")): hit.find(f"{SVG}title").text
        for hit in parsed(drawing).iter(f"{SVG}rect")
        if hit.get("class") == "hit"
    }
    assert set(titles) == set(range(drawing.blocks + 1))
    for layer, text in titles.items():
        for track in drawing.tracks:
            for series in SERIES[track.kind]:
                value = value_at(track, series, layer)
                if value is not None:
                    share = f"{100 * value:.3g} %"
                    assert (share if track.kind in SHARES else formats.number(value)) in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_everything_is_inside_the_picture(name: str) -> None:
    root = parsed(EXAMPLES[name])
    wide, high = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for hit in root.iter(f"{SVG}rect"):
        if hit.get("class") == "hit":
            assert float(hit.get("width")) + 24 <= wide and float(hit.get("y")) < high


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_file_is_small(name: str) -> None:
    assert len(svg_text(EXAMPLES[name]).encode("utf-8")) <= 200_000


def test_the_picture_has_a_role_a_title_and_a_description() -> None:
    root = parsed(example())
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "What is inside SmolLM2-135M?"
    assert root.find(f"{SVG}desc").text.startswith("Known by layer 5, said from layer 24 on. Tense")
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert shown[:2] == ["What is inside SmolLM2-135M?", "Known by layer 5, said from layer 24 on."]


def test_it_is_dark_by_preference_on_screens_only() -> None:
    style = parsed(example()).find(f"{SVG}style").text
    assert style.count("@media") == 1 and "@media screen and (prefers-color-scheme:dark)" in style
    light = style.split("@media")[0]
    assert ".ttl{fill:#1f2733}" in light and ".ttl{fill:#e6eaf0}" in style


def test_an_observation_is_a_band_over_its_layers_with_its_sentence_below() -> None:
    drawing = example(30)
    svg = svg_text(drawing)
    bands = re.findall(r'class="band" d="M0,([\d.]+)h([\d.]+)v([\d.]+)', svg)
    heights = {(y, high) for y, _, high in bands[:-1]}
    assert len(bands) == 8 and len(heights) == 1
    assert float(next(iter(heights))[1]) == pytest.approx(2 * 610 / 31, abs=0.1)
    assert drawing.observations[0].sentence in svg
    assert 'class="band"' not in svg_text(replace(drawing, observations=()))


def test_a_long_finding_goes_below_the_question() -> None:
    long = replace(example(), title="Known early and said late. " * 5)
    texts = [t for t in parsed(long).iter(f"{SVG}text") if t.get("class") == "fnd"]
    assert texts[0].get("x") == "0" and len(texts) >= 1
    assert not [t for t in parsed(replace(example(), title="")).iter() if t.get("class") == "fnd"]


NUMBERS = st.none() | st.floats(-2, 2) | st.floats() | st.just(0.0)


@st.composite
def drawings(draw) -> Drawing:
    """Any numbers in any series, of any length, and any text."""
    blocks = draw(st.integers(1, 12))
    tracks = []
    for kind in draw(st.lists(st.sampled_from(sorted(SERIES)), max_size=7)):
        names = draw(st.sets(st.sampled_from(SERIES[kind])))
        values = st.lists(NUMBERS, max_size=blocks + 3).map(tuple)
        text = draw(st.text(max_size=40))
        tracks.append(
            Track(
                kind, text, text, text, text,
                {name: draw(values) for name in sorted(names)},
                sentence=text, command=text,
                baseline=draw(st.none() | st.floats(-2, 2)),
                top=draw(st.none() | st.floats(-2, 2)),
                trained=draw(st.none() | st.lists(st.booleans(), max_size=blocks + 3).map(tuple)),
            )
        )  # fmt: skip
    words = st.none() | st.builds(LayerWord, st.text(max_size=9), st.floats(), st.booleans())
    return replace(
        example(blocks),
        tracks=tuple(tracks),
        words=tuple(draw(st.lists(words, max_size=blocks + 3))),
        sentence=draw(st.text(max_size=300)),
    )


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawings())
def test_any_numbers_and_any_text_can_be_drawn(drawing: Drawing) -> None:
    root = parsed(drawing)
    assert {element.tag for element in root.iter()} <= MARKUP
    assert "nan" not in "".join(p.get("d") for p in root.iter(f"{SVG}path"))
    html_text(drawing).encode("utf-8")
    out = io.StringIO()
    SafeConsole(file=out, width=80).print(drawing_view(drawing, 80))
    assert max(map(cell_len, out.getvalue().splitlines())) <= 80
