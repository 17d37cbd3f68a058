import base64
import gzip
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cutaway.report.drawing import page
from cutaway.report.drawing.svg import svg_text
from tests.report.drawing.examples import all_examples, example, unmeasured

EXAMPLES = all_examples()


class Elements(HTMLParser):
    """Every start tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_runs_its_own_script_only_and_asks_for_nothing(name: str) -> None:
    text = page.html_text(EXAMPLES[name])
    elements = Elements(text).found
    scripts = [attrs for tag, attrs in elements if tag == "script"]
    assert scripts == [{"type": "text/plain", "class": "cd-svg"}, {}]
    for tag, attrs in elements:
        assert not [key for key in attrs if key.startswith("on")], tag
        assert not {"src", "href", "action", "srcset"} & set(attrs), tag
    assert "url(" not in text and "@import" not in text
    assert not {tag for tag, _ in elements} & {"img", "iframe", "object", "link", "form"}


def test_the_policy_names_the_checksum_of_the_script() -> None:
    text = page.html_text(example(6))
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text and "default-src 'none'" in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_is_small(name: str) -> None:
    assert len(page.html_text(EXAMPLES[name]).encode("utf-8")) <= 400_000


def test_the_page_holds_the_picture_as_a_file() -> None:
    packed = re.search(r'class="cd-svg">([^<]*)<', page.html_text(example(6)))[1]
    assert gzip.decompress(base64.b64decode(packed)).decode() == svg_text(example(6))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_picture_has_a_text_alternative_and_every_column_all_layers(name: str) -> None:
    text = page.html_text(EXAMPLES[name])
    pictures = [attrs for tag, attrs in Elements(text).found if tag == "svg"]
    assert all(p["role"] == "img" and p["aria-label"].strip() for p in pictures)
    hits = text.count('class="hit"')
    assert hits == len(pictures) * (EXAMPLES[name].blocks + 1)


def test_the_table_has_every_number() -> None:
    drawing = example(6)
    text = page.html_text(drawing)
    table = text[text.index("<table>") :]
    assert table.count("<tr>") == 8 and table.count('scope="col"') == 2 + len(drawing.flat_series())
    tense = drawing.tracks[0].series["value"]
    assert all(f"<td>{value:.3f}</td>" in table for value in tense)
    assert "<td>–</td>" in table


def test_a_missing_track_has_its_command_below() -> None:
    text = page.html_text(unmeasured(example(6), "fisher"))
    assert "<h2>Not measured yet</h2>" in text
    assert text.count("<dd><code>cutaway inject") == 1
    assert "Not measured yet" not in page.html_text(example(6))


def test_two_fragments_share_no_id_and_no_script() -> None:
    both = "".join(page.html_fragment(example(2), key=key, style=False) for key in "ab")
    ids = re.findall(r'\bid="([^"]*)"', both)
    assert len(ids) == len(set(ids)) == 4
    assert "<script>" not in both and "<style>" not in both


def test_the_heading_has_the_level_that_the_page_needs() -> None:
    text = page.html_fragment(example(2), heading="h2")
    assert "<h1" not in text and re.search(r'<h2 class="cd-title"[^>]*>What is inside', text)


def test_columns_are_narrower_where_there_is_less_room() -> None:
    def total(text: str) -> float:
        return sum(float(attrs["width"]) for tag, attrs in Elements(text).found if tag == "svg")

    assert total(page.html_fragment(example(2), width=1150)) <= 1150
    assert total(page.html_fragment(example(2))) > 1150


def test_a_fragment_has_its_style_unless_the_page_has_it() -> None:
    assert f"<style>{page.page_style()}</style>" in page.html_fragment(example(2))
    assert page.html_text(example(2)).count("<style>") == 1


def test_headers_lead_to_the_page_of_the_track() -> None:
    text = page.html_fragment(example(2), links={"tense": "?run=a&b", "fisher": "#run-3"})
    assert re.findall(r'<a href="([^"]*)"', text) == ["?run=a&amp;b", "#run-3"]
    assert "<a " not in page.html_fragment(example(2))


def test_the_style_is_dark_by_preference_and_by_the_pages_theme_and_light_in_print() -> None:
    style = page.page_style()
    assert ":root:not([data-theme=light]) .cutaway-drawing .ttl" in style
    assert ":root[data-theme=dark] .cutaway-drawing .ttl{fill:#e6eaf0}" in style
    assert style.count("@media screen{:root[data-theme=dark]") == 1
    fixed = page.page_style("dark")
    assert ".cutaway-drawing .ttl{fill:#e6eaf0}" in fixed and "#1f2733" not in fixed


def test_hostile_text_in_the_page_is_text() -> None:
    text = page.html_text(EXAMPLES["hostile"])
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert "\x00" not in text and "\u202e" not in text


def test_without_a_finding_there_is_only_the_question() -> None:
    text = page.html_fragment(replace(example(2), title=""))
    assert re.search(r"<h1[^>]*>What is inside SmolLM2-135M\? </h1>", text)
