"""Peak memory of extraction above the model's own, against the number of rows."""

import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.extract_setup import BUNDLED, fresh_home, opened, sentences
from bench.report import row
from cutaway.core.textset import TextSet

LIMIT_MB = 300
# Between two sizes that both fill the store's buffers, more rows may cost only their tokens.
GROWTH_MB = 30
SIZES = (1_000, 8_000, 20_000)
BUNDLED_ROWS = 300
QUICK_SIZES = (50, 100, 200)
QUICK_BUNDLED_ROWS = 8


def run(quick: bool) -> dict[str, Any]:
    """Megabytes at each size, each in a process of its own."""
    sizes, few = (QUICK_SIZES, QUICK_BUNDLED_ROWS) if quick else (SIZES, BUNDLED_ROWS)
    found = [_elsewhere("small", rows) for rows in sizes] + [_elsewhere(BUNDLED, few)]
    growth = found[2]["extra_mb"] - found[1]["extra_mb"]
    lines = [_line(f) for f in found]
    lines.append(
        row(f"growth from {sizes[1]:,} to {sizes[2]:,} rows", f"{growth:,.0f} MB",
            bar=f"<= {GROWTH_MB} MB", met=growth <= GROWTH_MB)
    )  # fmt: skip
    return {"title": "Memory of reading", "text": [_said()], "table": lines, "measured": found}


def _said() -> str:
    return (
        "All layers, last and mean pooling, float32, into an empty cache. The high-water mark of "
        "the resident memory during the extraction, minus the resident memory after opening the "
        "model and one warm-up extraction; a process for each line. `small` is a random "
        "llama-shaped model (4 layers of 256). 1,000 rows of it do not yet fill one shard of the "
        "store (64 MB), so independence of the rows is judged above that."
    )


def _line(found: dict[str, Any]) -> dict[str, Any]:
    what = f"{found['model']}, {found['rows']:,} rows, {found['tokens']:,} tokens"
    extra = found["extra_mb"]
    ours = f"{extra:,.0f} MB above {found['base_mb']:,.0f} MB, {found['seconds']:,.0f} s"
    return row(what, ours, bar=f"<= {LIMIT_MB} MB", met=extra <= LIMIT_MB)


def _elsewhere(model: str, rows: int) -> dict[str, Any]:
    """The figures, from a process that does nothing else."""
    print(f"   {model}, {rows:,} rows", file=sys.stderr)
    command = [sys.executable, "-m", "bench.extract_memory", model, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def watched(model: str, rows: int) -> dict[str, Any]:
    """One extraction of a model opened for it."""
    with tempfile.TemporaryDirectory() as work:
        return {"model": model, **measure_reading(opened(model, Path(work)), rows)}


def measure_reading(lm: Any, rows: int) -> dict[str, Any]:
    """Warm up, note the resident memory, extract, note the high-water mark."""
    from bench.extract_ways import everything
    from cutaway.extract.activations import extract

    texts = _many(rows)
    with fresh_home():
        extract(lm, texts.take(range(8)), everything(lm))
    gc.collect()
    reset_peak()
    base, start = memory_mb("VmRSS"), time.process_time()
    with fresh_home():
        swept = extract(lm, texts, everything(lm)).stats
    peak, spent = memory_mb("VmHWM"), time.process_time() - start
    assert swept is not None
    return {
        "rows": rows, "tokens": swept.tokens, "seconds": round(swept.seconds, 3),
        "processor_seconds": round(spent, 3),
        "base_mb": round(base, 1), "extra_mb": round(peak - base, 1),
    }  # fmt: skip


def _many(rows: int) -> TextSet:
    """As many sentences as wanted; where the text is shorter, numbered ones fill it up."""
    texts = sentences(rows)
    more = (f"{n} {texts.texts[n % len(texts)]}" for n in range(len(texts), rows))
    return TextSet(texts.name, (*texts.texts, *more))


def reset_peak() -> None:
    """Forget the peak of opening the model (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_mb(field: str) -> float:
    """A memory field of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    print(json.dumps(watched(sys.argv[1], int(sys.argv[2]))))
