"""The one-file report, opened from the disk as a reader would."""

import pytest

from cutaway.report.html import write_html
from cutaway.store.results import results
from tests.report.fake_runs import failed_rows, probe_details, probe_rows, save_run

pytestmark = pytest.mark.browser
NASTY = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    rows = probe_rows(pools=("last", "mean"), classifiers=("logistic", "lda"))
    save_run(folder / "runs", rows, entries=probe_details(layers=("7", "9")), address="a1")
    save_run(folder / "runs", failed_rows(NASTY), address="a2")
    told = {"verdict": [NASTY], "metric": "accuracy"}
    nasty = probe_rows(models=(NASTY,), pools=(NASTY, "mean"), classifiers=(NASTY,))
    save_run(folder / "runs", nasty, address="a3", summary=told)
    return write_html(list(results(folder / "runs")), folder / "report.html", title="Report")


def scroll_through(page) -> None:
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 500):
        page.evaluate(f"window.scrollTo(0, {top})")
        page.wait_for_timeout(60)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")],
)
def test_the_report_draws_everything_and_calls_nobody(
    report, open_page, pictures, name, width, scheme
) -> None:
    watched = open_page(width=width, scheme=scheme)
    page = watched.page
    page.goto(report.as_uri())
    scroll_through(page)
    page.wait_for_function("document.querySelectorAll('.plot:not([data-drawn])').length === 0")
    assert page.locator(".plot .main-svg").count() > 10
    assert page.title() == "Report", "no text from data was run as a script"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    assert watched.called == {"file"} and watched.complaints == []
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=pictures / f"report-{name}.png", full_page=True)


def test_the_ground_can_be_switched_and_figures_follow(report, open_page) -> None:
    page = open_page().page
    page.goto(report.as_uri())
    ink = "getComputedStyle(document.querySelector('.plot .gtitle')).fill"
    page.wait_for_selector(".plot .gtitle")
    before = page.evaluate(ink)
    page.click("#theme")
    page.wait_for_function(f"{ink} !== '{before}'")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_command_is_copied_by_its_button(report, open_page) -> None:
    page = open_page().page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(report.as_uri())
    page.locator("button[data-copy]").first.click()
    page.wait_for_selector("button[data-copy]:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()").startswith("cutaway probe")
