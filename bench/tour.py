"""The tour as a new user takes it: from an empty home to the report, and once more."""

import tempfile
from pathlib import Path
from typing import Any

from bench.extract_setup import fresh_home
from bench.process import CUTAWAY, took
from bench.report import row


def run(quick: bool) -> dict[str, Any]:
    """Minutes of the first tour, seconds of the second, and the size of the report."""
    with tempfile.TemporaryDirectory(prefix="cutaway-tour-") as work, fresh_home():
        words = [CUTAWAY, "tour", "--out", work, *(["--quick"] if quick else [])]
        first, second = (took(words).seconds for _ in range(2))
        size = (Path(work) / "report.html").stat().st_size / 1e6
    return {
        "title": "The tour",
        "text": "`cutaway tour` on the bundled model: every method, from an empty home (the model "
        "is unpacked too) to the report; then the same command again."
        + (" The quick tour." if quick else ""),
        "table": [
            row("the first tour", f"{first / 60:.1f} min", bar="< 10 min", met=first < 600),
            row("the same tour again", f"{second:.0f} s"),
            row("its report.html", f"{size:.1f} MB", bar="< 15 MB", met=size < 15),
        ],
        "measured": {"seconds": [first, second], "megabytes": size},
    }
