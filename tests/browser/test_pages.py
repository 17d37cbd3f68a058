"""Every method's page in a browser, on a small tour: what someone sees who has no runs yet."""

import os
import subprocess
import sys

import pytest

from cutaway.app.pages import PAGES
from tests.browser.test_app import go_to
from tests.tiny import SENTENCES, tiny

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """A folder in which the tour was taken with a tiny model, and nothing else was run."""
    place = tmp_path_factory.mktemp("toured")
    # Words that the tour's answers are made of have to be single tokens.
    words = [*SENTENCES, *["It was good and it was bad."] * 9]
    words += ["All about business, cooking, science and sport."] * 9
    tiny("llama", place / "model", texts=words)
    command = [sys.executable, "-m", "cutaway", "tour", "--model", "model", "--quick"]
    env = {**os.environ, "CUTAWAY_HOME": str(place / "home")}
    done = subprocess.run(command, cwd=place, env=env, check=True, capture_output=True, text=True)
    assert "Open the report" in done.stdout
    return place


@pytest.mark.parametrize(("width", "scheme"), [(1360, "light"), (390, "dark")])
def test_without_own_runs_every_page_shows_the_tour(
    toured, serve, open_page, pictures, width, scheme
) -> None:
    watched = open_page(width=width, scheme=scheme)
    page, url = watched.page, serve(toured / "runs", place=toured)
    page.goto(url)
    page.get_by_text("so these are the tour").wait_for()
    for name, told in PAGES.items():
        go_to(page, name.capitalize())
        page.get_by_text(told.question).wait_for()
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        for view in (*told.views, "Table", "Provenance"):
            page.get_by_test_id("stButtonGroup").get_by_text(view, exact=True).click()
            page.wait_for_timeout(700)
            assert page.get_by_test_id("stException").count() == 0, (name, view)
            sticks_out = page.evaluate("document.documentElement.scrollWidth") - width
            assert sticks_out <= 0, (name, view)
            shot = f"app-{scheme}-{width}-{name}-{view.split()[0].lower()}"
            watched.shoot(pictures, shot, height=1500 if width > 400 else 1800)
    assert watched.called == {url.removeprefix("http://")}, "nobody outside is called"
    assert watched.complaints == []


def test_every_page_opens_by_its_address(toured, serve, open_page) -> None:
    watched = open_page()
    page, url = watched.page, serve(toured / "runs", place=toured)
    for name in (*PAGES, "live", "new"):
        page.goto(f"{url}/{name}")
        title = "New run" if name == "new" else name.capitalize()
        page.get_by_role("heading", name=title, exact=True).wait_for()
        page.reload()
        page.get_by_role("heading", name=title, exact=True).wait_for()
    assert watched.called == {url.removeprefix("http://")}, "nobody outside is called"
    assert watched.complaints == [], "and nothing is looked for where it isn't"


def test_the_tours_report_draws_every_section_and_calls_nobody(toured, open_page, pictures) -> None:
    watched = open_page()
    page = watched.page
    page.goto((toured / "tour" / "report.html").as_uri())
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 500):
        page.evaluate(f"window.scrollTo(0, {top})")
        page.wait_for_timeout(60)
    page.wait_for_function("document.querySelectorAll('.plot:not([data-drawn])').length === 0")
    assert (toured / "tour" / "report.html").stat().st_size < 15e6
    assert watched.called == {"file"} and watched.complaints == []
    page.screenshot(path=pictures / "tour-report.png")
