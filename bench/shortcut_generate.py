"""Self-speculative text: ours against plain `generate` and transformers' own early-exit drafts.

CUTAWAY_BENCH_MODEL names another model than the bundled one, CUTAWAY_BENCH_TEXT a file of texts
that suits it.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.extract_setup import BUNDLED, sentences
from bench.report import row
from cutaway.core.textset import TextSet
from cutaway.data.load import load
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.run import shortcut_verbs as shortcut
from cutaway.run.shortcut.plain import plain_text, stops_of

PROMPTS, NEW = 100, 64


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Identity with greedy generate over many prompts, and the speed beside two rivals."""
    prompts, new, texts = (3, 8, 60) if quick else (rows or PROMPTS, NEW, 1500)
    lm = open_model(os.environ.get("CUTAWAY_BENCH_MODEL", BUNDLED))
    source = texts_for(texts)
    said = [text[:80] for text in source.texts[:prompts]]
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as folder:
        file = str(Path(folder) / "maps.safetensors")
        shared = {"model": lm, "runs": folder, "quiet": True}
        shortcut.fit(
            **shared, text=source, max_tokens=128, positions_per_text=4,
            layers="to-final", tuned=0 if quick else 150, out=file,
        )  # fmt: skip
        chosen = shortcut.generate(
            model=lm, shortcut=file, prompt=said, max_new_tokens=new, quiet=True
        )
        layer = chosen.setting.layer if chosen.setting else max(1, lm.layers // 3)
        forced = shortcut.generate(
            model=lm, shortcut=file, prompt=said, max_new_tokens=new, quiet=True,
            exit_layers=layer, draft=2,
        )  # fmt: skip
    rival = early_exit(lm, said[:10], new, layer)
    return report(lm, chosen, forced, rival)


def texts_for(count: int) -> TextSet:
    """The texts of CUTAWAY_BENCH_TEXT, or sentences."""
    file = os.environ.get("CUTAWAY_BENCH_TEXT")
    return load(file, limit=count, as_task="text") if file else sentences(count)


def early_exit(lm: LM, prompts: list[str], new: int, layer: int) -> float | str:
    """Seconds of transformers' `assistant_early_exit` over plain's; the reason if it fails."""
    ours = plain = 0.0
    for text in prompts:
        ids = torch.tensor([lm.tokenizer(text)["input_ids"]], device=lm.device)
        _, seconds = plain_text(lm, ids, new, stops_of(lm))
        plain += seconds
        start = time.perf_counter()
        try:
            plain_text(lm, ids, new, stops_of(lm), assistant_early_exit=layer)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
        ours += time.perf_counter() - start
    return plain / ours


def report(lm: LM, chosen: Any, forced: Any, rival: float | str) -> dict[str, Any]:
    """The bench's table."""
    same = sum(text.identical for text in forced.texts)
    speed = {name: _speed(out) for name, out in (("chosen", chosen), ("forced", forced))}
    theirs = rival if isinstance(rival, str) else f"{rival:.2f}x plain"
    return {
        "title": "Self-speculative generation",
        "text": f"{lm.name}, {len(forced.texts)} prompts. " + " ".join(chosen.verdict),
        "table": [
            row("texts identical to greedy generate", f"{same} of {len(forced.texts)}",
                bar="all", met=same == len(forced.texts)),
            row("speed of the chosen setting against plain generate", f"{speed['chosen']:.2f}x",
                theirs, speed["chosen"], ">= 1.2x (goal)", speed["chosen"] >= 1.2),
            row("speed with drafts of 2 forced", f"{speed['forced']:.2f}x", ratio=speed["forced"]),
        ],
        "measured": {"setting": str(chosen.setting), "speed": speed, "early_exit": str(rival)},
    }  # fmt: skip


def _speed(out: Any) -> float:
    plain, ours = (sum(getattr(t, n) for t in out.texts) for n in ("plain_seconds", "seconds"))
    return plain / ours
