"""What `shortcut eval --samples` adds to the evaluation: its file and its processor time.

One run, in which the calls that only samples need are timed: finding the most likely tokens,
writing the pieces, and merging them into one file.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.extract_setup import BUNDLED, fresh_home, opened, sentences
from bench.report import row
from cutaway.core.textset import TextSet
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.samples import LensCells, SampleWriter
from cutaway.store.samples import SamplePieces

FIT, ROWS = 200, 3000
KINDS = ("id", "mat")
PARTS = ((LensCells, "add"), (SampleWriter, "write_cells"), (SamplePieces, "merge"))


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Megabytes of the samples, and the share of the processor time that they take."""
    fit, count = (40, 20) if quick else (FIT, rows or ROWS)
    texts = sentences(fit + count).texts
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as work, fresh_home():
        lm, file = opened(BUNDLED, Path(work)), str(Path(work) / "maps.safetensors")
        options = {"model": lm, "runs": work, "quiet": True}
        shortcut.fit(**options, text=TextSet("fit", texts[:fit]), layers="to-final", out=file)
        start, spent = time.process_time(), dict.fromkeys((name for _, name in PARTS), 0.0)
        with timed(spent):
            result = shortcut.eval(
                **options, text=TextSet("new", texts[fit:]), shortcut=file, kinds=KINDS,
                samples=True,
            )  # fmt: skip
        whole = time.process_time() - start
        size = (result.path / "samples.parquet").stat().st_size / 1e6
        return report(result.samples.height, size, whole, spent)


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    """Add up the processor time of the calls that only samples need."""
    kept = {(cls, name): getattr(cls, name) for cls, name in PARTS}

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                spent[name] += time.process_time() - start

        return call

    try:
        for (cls, name), function in kept.items():
            setattr(cls, name, wrapped(name, function))
        yield
    finally:
        for (cls, name), function in kept.items():
            setattr(cls, name, function)


def report(rows: int, size: float, whole: float, spent: dict[str, float]) -> dict[str, Any]:
    """The bench's table."""
    added = sum(spent.values())
    share = added / (whole - added)
    cells = ROWS * 31 * len(KINDS)
    scaled = size * cells / rows
    return {
        "title": "Every sample of an evaluation",
        "text": f"{BUNDLED}, `shortcut eval --samples` with kinds {', '.join(KINDS)} and an empty "
        f"cache: {rows:,} rows, each with text, ten tokens with probabilities, surprisal, KL, "
        "entropy and loss. Processor time of the whole evaluation, reading included.",
        "table": [
            row("samples.parquet for 3,000 samples x 31 layers x 2 kinds", f"{scaled:.1f} MB",
                bar="< 60 MB", met=scaled < 60),
            row("processor time that samples add to the evaluation", f"{added:.1f} s",
                f"{whole - added:.1f} s", share, "<= 0.1", share <= 0.1),
        ],
        "measured": {"rows": rows, "mb": size, "seconds": whole, "spent": spent,
                     "threads": torch.get_num_threads()},
    }  # fmt: skip
