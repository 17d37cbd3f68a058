"""Tens of thousands of runs: what asking about them takes with an index beside them."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bench.app import browser, served, visit
from bench.extract_setup import fresh_home
from bench.process import CUTAWAY, Took, took, took_alone
from bench.report import row, spread, told
from cutaway.store.index_files import index_folder

RUNS, ROWS = 20_000, 5_000_000
MOST_SECONDS, MOST_MEGABYTES = 2.0, 500.0
BY_LAYER = "select layers, avg(value) from rows group by layers"
QUESTIONS = {
    "`ls`": ["ls"],
    "`ls --json`": ["ls", "--json"],
    "`query` on `runs`, by method": [
        "query", "select method, count(*), max(summary->>'$.metric') from runs group by method",
    ],
    "`query` on `rows`, by layer": ["query", BY_LAYER],
    "`query` on `rows`, all columns of the ten largest": [
        "query", "select * from rows order by value desc limit 10",
    ],
    "`query` on `scores`, by metric": [
        "query", "select method, metric, max(value) from scores group by all",
    ],
    "`report --html` of two runs by address": ["report", "5feceb", "6b86b2"],
    "`report --html --method probe --newest 10`": ["report", "--method", "probe", "--newest", "10"],
    "`report --html` without a filter (the newest 40)": ["report"],
}  # fmt: skip
FIRST = {"`ls`": ["ls"], "`query` on `rows`": ["query", BY_LAYER],
         "`query` on `scores`": ["query", "select count(*) from scores"]}  # fmt: skip
NO_BAR = ("`ls --json`", "`report --html` without a filter (the newest 40)")


def run(quick: bool, rounds: int = 3, folder: str = "") -> dict[str, Any]:
    """Seconds and megabytes of each question, the first time and later."""
    runs, rows = (300, 30_000) if quick else (RUNS, ROWS)
    rounds = 1 if quick else min(rounds, 3)
    with tempfile.TemporaryDirectory(prefix="cutaway-big-") as work, fresh_home():
        place = Path(folder or work + "/runs")
        if not folder:
            took([sys.executable, "-m", "bench.big_folder_runs", str(place), str(runs), str(rows)])
        page = str(Path(work) / "x.html")
        built = {name: ask(words, place, page) for name, words in FIRST.items()}
        # Makes what is missing, so that every question that follows finds its index.
        for words in QUESTIONS.values():
            ask(words, place, page)
        found = {name: [ask(words, place, page) for _ in range(rounds)]
                 for name, words in QUESTIONS.items()}  # fmt: skip
        visits = app_visits(place, runs, rounds)
        index = index_folder(place)
        size = sum(p.stat().st_size for p in index.iterdir()) / 1e6 if index else 0.0
    return {
        "title": "A folder of many runs",
        "text": f"{runs:,} runs with {rows:,} rows: copies of seven real runs of six methods with "
        "other addresses, values and lengths. Each command in a process of its own, imports and "
        "looking at every run's files included; processor time is user and system of the process. "
        "The index is there, except in the lines that say `the first time`. A visit of the app is "
        "from asking for the page to its table of runs, in a headless Chromium on the same "
        "machine; its processor time and memory are those of the server. The load average of the "
        f"machine was {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores; a busy machine makes the "
        "seconds longer, not the processor time.",
        "table": [
            *(line(name, taken) for name, taken in found.items()),
            *(line(name, taken) for name, taken in visits.items()),
            *(row(f"{name}, the first time", shown([once])) for name, once in built.items()),
            row("size of the index", f"{size:.0f} MB"),
        ],
        "measured": {
            name: {
                "seconds": spread([one.seconds for one in taken]),
                "processor": spread([one.processor for one in taken]),
                "peak_mb": max(one.peak for one in taken),
            }
            for name, taken in {
                **found,
                **visits,
                **{f"first {n}": [t] for n, t in built.items()},
            }.items()
        },
    }


def ask(words: list[str], place: Path, page: str) -> Took:
    """One command about the folder."""
    html = ["--html", page] if words[0] == "report" else []
    print(f"   {' '.join(words)[:60]}", file=sys.stderr)
    return took_alone([CUTAWAY, *words, *html, "--runs", str(place)])


def line(name: str, taken: list[Took]) -> dict[str, Any]:
    """A line of the table; the bar holds for the median of the seconds and the largest memory."""
    if name in NO_BAR:
        return row(name, shown(taken))
    seconds = spread([one.seconds for one in taken])["median"]
    peak = max(one.peak for one in taken)
    return row(
        name, shown(taken), bar=f"<= {MOST_SECONDS:g} s, <= {MOST_MEGABYTES:g} MB",
        met=seconds <= MOST_SECONDS and peak <= MOST_MEGABYTES,
    )  # fmt: skip


def shown(taken: list[Took]) -> str:
    """Seconds, processor time and memory for people."""
    processor = spread([one.processor for one in taken])["median"]
    peak = max(one.peak for one in taken)
    seconds = told(spread([one.seconds for one in taken]), "s")
    return f"{seconds}, processor {processor:.2f} s, {peak:.0f} MB"


def app_visits(place: Path, runs: int, rounds: int) -> dict[str, list[Took]]:
    """The first visit of a server just started, and later ones."""
    first, later = [], []
    with browser() as open_page:
        for _ in range(rounds):
            with served(place) as url:
                for kept in (first, later):
                    with server_use() as use:
                        seconds = visit(open_page, url, runs)
                    kept.append(Took("", seconds, use["peak"], use["processor"]))
    return {"overview of the app, first visit": first, "overview of the app, second visit": later}


@contextmanager
def server_use() -> Iterator[dict[str, float]]:
    """What the app's processes use within the block."""
    use: dict[str, float] = {}
    before = sum(one.cpu_times().user + one.cpu_times().system for one in _servers())
    yield use
    after = sum(one.cpu_times().user + one.cpu_times().system for one in _servers())
    use["processor"] = after - before
    use["peak"] = max(_peak(one) for one in _servers())


def _servers() -> list[psutil.Process]:
    found = []
    for one in psutil.Process().children(recursive=True):
        # Processes of the browser come and go.
        with suppress(psutil.Error):
            if any("cutaway" in word for word in one.cmdline()[:4]):
                found.append(one)
    return found


def _peak(process: psutil.Process) -> float:
    """The most memory that a process had at once, in megabytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
