"""The app by the clock of a reader: first paint, many runs, switching pages, a large figure."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from bench.report import row, spread, told
from cutaway.app.launch import HOST, free_port
from cutaway.report.html import write_html
from cutaway.store.results import results, save_record

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
MANY, SOME, POINTS = 2_000, 200, 5_000


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """Seconds of each, as a headless Chromium sees them."""
    many, some, points = (20, 10, 50) if quick else (MANY, SOME, POINTS)
    rounds = 1 if quick else min(rounds, 5)
    with tempfile.TemporaryDirectory(prefix="cutaway-app-") as work:
        folder = Path(work)
        shelves = {count: shelf(folder / str(count), count) for count in (some, many)}
        large = shelf(folder / "large", 1, points)
        with browser() as open_page:
            first = [first_paint(shelves[some], some, open_page) for _ in range(rounds)]
            with served(shelves[many]) as url:
                opened = [visit(open_page, url, many) for _ in range(rounds)]
            with served(shelves[some]) as url:
                switched = switches(open_page, url, rounds)
            with served(large) as url:
                drawn = [figure(open_page, url) for _ in range(rounds)]
                moved = hovers(open_page, url, 5 if quick else 40)
        size = write_html(list(results(large)), folder / "report.html").stat().st_size / 1e6
    lines = [
        bar(f"first paint after `cutaway app` with {some} runs", first, 3),
        bar(f"a first visit with {many:,} runs", opened, 3),
        bar(f"switching pages at {some} runs", switched, 1),
        row(
            f"the probe page with a figure of {points:,} rows",
            told(spread(drawn), "s"),
        ),
        bar("a move of the mouse over it, until the next picture", moved, 0.1),
        row(
            f"report.html of a run with {points:,} rows", f"{size:.1f} MB", bar="< 15 MB",
            met=size < 15,
        ),
    ]  # fmt: skip
    return {
        "title": "The app",
        "text": "A headless Chromium on the same machine. First paint is from the start of the "
        "command, imports included, to the table of runs being on the console. A move of the mouse "
        "is from the move to the second frame after it, with what hovers over the figure drawn.",
        "table": lines,
    }


def bar(what: str, seconds: list[float], limit: float) -> dict[str, Any]:
    """A line whose median has a limit."""
    found = spread(seconds)
    return row(what, told(found, "s"), bar=f"< {limit} s", met=found["median"] < limit)


def shelf(folder: Path, count: int, points: int = 20) -> Path:
    """One run under many addresses."""
    layers = points // 10
    rows = pl.DataFrame(
        {
            "model": "m", "data": "d", "kind": "probe", "layers": [str(i) for i in range(layers)],
            "pool": "last", "classifier": "logistic", "repeat": 0, "n_train": 100, "n_test": 50,
            "metric": "accuracy", "value": [0.5 + 0.4 * i / layers for i in range(layers)],
            "low": 0.4, "high": 0.95, "status": "done", "reason": "",
        }
    )  # fmt: skip
    rows = pl.concat([rows.with_columns(repeat=pl.lit(i, pl.Int32)) for i in range(10)])
    record = save_record(
        folder, method="probe", address="aaaa", spec={"model": ["m"], "data": ["d"]},
        summary={"metric": "accuracy", "verdict": ["Layer 1 knows it."]}, baselines={},
        model={"name": "m", "layers": layers}, data={"name": "d", "rows": 150, "digest": "d1"},
        seed=0, versions={"python": "3.11"}, seconds=1.0, peak_memory_mb=1.0,
        command="cutaway probe --model m --data d", rows=rows,
    )  # fmt: skip
    told = json.loads((record.path / "result.json").read_text())
    told.pop("seal", None)
    for number in range(1, count):
        place = record.path.with_name(f"b{number}")
        shutil.copytree(record.path, place)
        (place / "result.json").write_text(json.dumps({**told, "address": place.name}))
    return folder


@contextmanager
def browser() -> Iterator[Any]:
    """A maker of fresh pages in one browser, each closed behind its reader.

    A page left open tries again and again to reach its server, and slows down the next one.
    """
    from playwright.sync_api import sync_playwright

    path = os.environ.get("BROWSER_PATH") or shutil.which("chromium")
    if path is None:
        raise RuntimeError("no chromium on this machine; name one with BROWSER_PATH")
    with sync_playwright() as player:
        chromium = player.chromium.launch(executable_path=path, args=list(FLAGS))

        @contextmanager
        def open_page() -> Iterator[Any]:
            context = chromium.new_context(viewport={"width": 1360, "height": 900})
            yield context.new_page()
            context.close()

        yield open_page
        chromium.close()


@contextmanager
def served(runs: Path, *, wait: bool = True) -> Iterator[str]:
    """The app as its command starts it; its address."""
    port = free_port(8800)
    url = f"http://{HOST}:{port}"
    words = [
        sys.executable,
        "-m",
        "cutaway",
        "app",
        "--runs",
        str(runs),
        "--port",
        str(port),
        "--no-token",
    ]
    child = subprocess.Popen(
        [*words, "--no-open"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        if wait:
            until_up(url)
        yield url
    finally:
        child.terminate()
        child.wait(timeout=30)


def until_up(url: str) -> None:
    """Return as soon as the server answers."""
    for _ in range(1200):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the app did not answer within a minute")


def visit(open_page: Any, url: str, count: int) -> float:
    """Seconds from asking for the page to its table."""
    with open_page() as page:
        start = time.perf_counter()
        page.goto(url)
        until_table(page, count)
        return time.perf_counter() - start


def until_table(page: Any, count: int) -> None:
    """Return as soon as the table of so many runs is on the console."""
    page.get_by_text(f"{count:,} of {count:,} runs").wait_for()
    page.get_by_test_id("stDataFrame").first.wait_for()


def first_paint(runs: Path, count: int, open_page: Any) -> float:
    """Seconds from the command to the table of runs."""
    with open_page() as page:
        start = time.perf_counter()
        with served(runs) as url:
            page.goto(url)
            until_table(page, count)
            return time.perf_counter() - start


def switches(open_page: Any, url: str, rounds: int) -> list[float]:
    """Seconds from a click in the navigation to the other page's heading."""
    taken = []
    with open_page() as page:
        page.goto(url)
        page.get_by_test_id("stDataFrame").first.wait_for()
        for name in ("Probe", "Overview") * (rounds + 1):
            start = time.perf_counter()
            page.get_by_role("link", name=name, exact=True).first.click()
            page.get_by_role("heading", name=name, exact=True).wait_for()
            taken.append(time.perf_counter() - start)
    # The first two load what the pages need.
    return taken[2:]


def figure(open_page: Any, url: str) -> float:
    """Seconds until the first figure of the probe page is drawn."""
    with open_page() as page:
        start = time.perf_counter()
        page.goto(f"{url}/probe")
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        return time.perf_counter() - start


def hovers(open_page: Any, url: str, moves: int) -> list[float]:
    """Seconds from each move of the mouse over the figure to the frame that answers it."""
    taken = []
    frame = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    with open_page() as page:
        page.goto(f"{url}/probe")
        plot = page.locator(".js-plotly-plot .main-svg").first
        plot.wait_for()
        page.wait_for_timeout(1000)
        box = plot.bounding_box()
        for i in range(moves):
            start = time.perf_counter()
            page.mouse.move(box["x"] + box["width"] * (0.2 + 0.6 * i / moves), box["y"] + 200)
            page.evaluate(frame)
            taken.append(time.perf_counter() - start)
    return taken
