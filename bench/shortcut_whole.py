"""All pairs of layers of the bundled model: fit, eval and exit as commands, one after the other."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.extract_setup import BUNDLED, fresh_home, sentences
from bench.process import CUTAWAY, OPEN, took
from bench.report import row

SENTENCES, MINUTES = 2_000, 15


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Seconds of each command from an empty home, the memory it told, and the memory it took."""
    texts = sentences(60 if quick else rows or SENTENCES)
    with tempfile.TemporaryDirectory(prefix="cutaway-whole-") as work, fresh_home():
        folder = Path(work)
        file, maps = folder / "texts.txt", folder / "maps.safetensors"
        file.write_text("\n".join(" ".join(text.split()) for text in texts.texts))
        common = ["--model", BUNDLED, "--text", str(file), "--runs", str(folder / "runs")]
        fit = [CUTAWAY, "shortcut", "fit", *common, "--layers", "all", "--out", str(maps)]
        fitted = took(fit)
        seconds = {"fit": fitted.seconds}
        for verb in ("eval", "exit"):
            words = [CUTAWAY, "shortcut", verb, *common, "--shortcut", str(maps)]
            seconds[verb] = took(words).seconds
        (told,) = took([*fit, "--dry-run", "--json"]).json()
        floor = took([sys.executable, "-c", OPEN]).json()["megabytes"]
    whole = sum(seconds.values())
    used, promised = fitted.peak - floor, told["memory_mb"]
    parts = ", ".join(f"{verb} {s:.0f} s" for verb, s in seconds.items())
    return {
        "title": "All shortcuts of the bundled model",
        "text": f"{len(texts):,} sentences of `{texts.name}`, every pair of the layers; each "
        "command in a process of its own, the first from an empty home (the model is unpacked and "
        "checked too).",
        "table": [
            row(
                "fit, eval and exit together", f"{whole:.0f} s ({parts})",
                bar=f"< {MINUTES} min", met=whole < 60 * MINUTES,
            ),
            row(
                "peak memory of the fit above the open model", f"{used:,.0f} MB",
                bar=f"<= {promised:,.0f} MB, told in advance", met=used <= promised,
            ),
        ],
        "measured": {"seconds": seconds, "memory": {"used": used, "told": promised}},
    }  # fmt: skip
