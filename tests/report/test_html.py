import json
import re
from html.parser import HTMLParser

import pytest

from cutaway.core.errors import Missing
from cutaway.report import html, sections
from cutaway.store.results import results
from tests.report.fake_runs import failed_rows, probe_details, probe_rows, save_run

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    save_run(folder, entries=probe_details(), address="a1")
    save_run(folder, failed_rows(NASTY), address="a2", command=f"cutaway probe --data '{NASTY}'")
    nasty = probe_rows(models=(NASTY,), sets=(NASTY,), pools=(NASTY,), repeats=2)
    told = {"verdict": [NASTY], "metric": "accuracy"}
    save_run(folder, nasty, address="a3", summary=told)
    return html.html_page(list(results(folder)), title=f"T {NASTY}")


def without_scripts(page: str) -> str:
    return re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)


def test_the_page_has_exactly_its_own_scripts(page: str) -> None:
    kinds = re.findall(r"<script([^>]*)>", page.split("<body>")[1])
    assert kinds == [
        ' type="application/json" id="pictures"',
        ' type="application/json" id="templates"',
        "",
    ]
    assert "<img" not in page.split("<body>")[1]


class Links(HTMLParser):
    """Every address in a page's attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.found |= {value[:1] for name, value in attrs if name in ("src", "href", "action")}


def test_nothing_in_the_page_points_outside(page: str) -> None:
    text = without_scripts(page)
    assert Links(text).found == {"#"}
    assert "url(" not in text and "@import" not in text
    assert "default-src 'none'" in text


def test_figures_in_the_page_are_json_that_can_not_end_its_element(page: str) -> None:
    kept = re.search(r'id="pictures">(.*?)</script>', page, re.DOTALL)[1]
    assert "<" not in kept
    pictures = json.loads(kept)
    used = re.findall(r'data-picture="(p\d+)"', page)
    assert sorted(used) == sorted(pictures) and len(used) > 8
    assert all("template" not in one["layout"] for one in pictures.values())


def test_every_run_has_verdict_figures_tables_provenance_and_command(page: str) -> None:
    runs = re.findall(r'<section class="run" id="run-\d">.*?</section>', page, re.DOTALL)
    assert len(runs) == 3
    for one in runs:
        for part in ('class="verdict"', "<figure", "<table>", "Provenance", "data-copy"):
            assert part in one
    assert "Failed cells" in page


def test_a_run_with_unreadable_rows_says_so_and_the_others_stand(tmp_path) -> None:
    save_run(tmp_path, address="a1")
    broken = save_run(tmp_path, address="a2")
    (broken.path / "rows.parquet").write_bytes(b"junk")
    page = html.html_page(list(results(tmp_path)))
    assert page.count('class="note"') == 1 and "checksum" in page
    assert page.count("<figure") > 0


def test_a_full_page_leaves_figures_out_and_says_how_many(tmp_path) -> None:
    save_run(tmp_path)
    page = html.html_page(list(results(tmp_path)), room=0)
    assert "2 figures omitted" in page and "<figure" not in page


def test_the_page_is_written_whole_and_is_the_same_twice(tmp_path) -> None:
    save_run(tmp_path / "runs")
    records = list(results(tmp_path / "runs"))
    one, two = (html.write_html(records, tmp_path / f"{i}.html") for i in range(2))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size < 15e6


def test_no_runs_are_no_page(tmp_path) -> None:
    with pytest.raises(Missing, match="cutaway tour"):
        html.html_page([])


def test_a_story_reads_as_questions_with_their_answers() -> None:
    told = sections.story_section("Which layers?\n  - Layer 7 <b>.\n\nHow far?\n  - Far.")
    assert "<h4>Which layers?</h4><p>Layer 7 &lt;b&gt;.</p><h4>How far?</h4><p>Far.</p>" in told
    assert sections.story_section("") == ""
