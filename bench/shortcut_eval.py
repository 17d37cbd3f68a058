"""Reading every layer through every map, against one forward and the bare head products."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.extract_setup import BUNDLED, fresh_home, opened, sentences
from bench.report import row
from cutaway.models.lm import LM
from cutaway.run import shortcut_verbs as shortcut
from cutaway.run.screen import Screen
from cutaway.run.shortcut.maps import load_maps
from cutaway.run.shortcut.readings import readings
from cutaway.run.shortcut.sample import Sample, take_sample
from cutaway.run.specs.shortcut import EvalSpec

ROWS = 400


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """Seconds of the evaluation, of the forward pass it needs, and of its head products alone."""
    count = 40 if quick else (rows or ROWS)
    texts = sentences(count)
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as work, fresh_home():
        lm, file = opened(BUNDLED, Path(work)), str(Path(work) / "maps.safetensors")
        shortcut.fit(model=lm, text=texts, runs=work, layers="to-final", out=file, quiet=True)
        spec = EvalSpec(model=lm.name, text=texts.name, shortcut=file)
        objects = {lm.name: lm, texts.name: texts}
        # The states are in the cache now, so the forward pass is timed by itself.
        sample = take_sample(lm, spec, Screen(quiet=True), objects)
        held, maps = sample.held, load_maps(file, lm)
        start = time.perf_counter()
        readings(sample, held, maps, ("id", "mat"), Screen(quiet=True))
        ours = time.perf_counter() - start
        forward, heads = one_forward(lm, sample), head_products(lm, len(held), 2 * lm.layers + 1)
    bare = forward + heads
    return {
        "title": "Reading every layer through every map",
        "text": f"{lm.name}, {len(held)} held-out tokens, kinds id and mat, all layers.",
        "table": [
            row("one forward and all readings against one forward and the bare head products",
                f"{forward + ours:.1f} s", f"{bare:.1f} s", (forward + ours) / bare, "<= 1.5x",
                (forward + ours) / bare <= 1.5),
        ],
        "measured": {"readings": ours, "forward": forward, "heads": heads},
    }  # fmt: skip


@torch.inference_mode()
def one_forward(lm: LM, sample: Sample) -> float:
    """Seconds of the plain model over the held-out texts, one at a time as the reference does."""
    start = time.perf_counter()
    for text in np.asarray(sample.held):
        lm.body(input_ids=torch.tensor([sample.seen.rows[text]], device=lm.device))
    return time.perf_counter() - start


@torch.inference_mode()
def head_products(lm: LM, rows: int, times: int) -> float:
    """Seconds of the products with the vocabulary and nothing else."""
    weight, _ = lm.output_embedding
    hidden = torch.randn(rows, weight.shape[1], dtype=weight.dtype, device=weight.device)
    start = time.perf_counter()
    for _ in range(times):
        for chunk in hidden.split(128):
            chunk @ weight.T
    return time.perf_counter() - start
