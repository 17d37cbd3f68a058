"""`shortcut eval` from nothing, against one forward pass and the bare head products.

The text to evaluate on is new: its states are in no cache, so the whole command is timed, reading
and r2 of all pairs included. Against it stand the plain model on the same tokens, in batches of
equal length order, and the products with the vocabulary that every layer and kind needs.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.extract_setup import BUNDLED, fresh_home, opened, sentences
from bench.report import row, spread, told
from cutaway.core.textset import TextSet
from cutaway.extract.request import build_token_rows
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.sample import SampleRequest
from cutaway.methods.shortcut.spec import EvalSpec
from cutaway.models.lm import LM

FIT, ROWS, BATCH = 800, 200, 16
RIVALS = {"intercept": True, "ridge": "auto"}
KINDS = ("id", "mat", "affine", "ridge")


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Seconds of the command, of the forward pass it needs, and of its head products alone."""
    fit, count, rounds = (40, 20, 1) if quick else (FIT, rows or ROWS, min(rounds, 3))
    texts = sentences(fit + count)
    mine, other = TextSet("fit", texts.texts[:fit]), TextSet("new", texts.texts[fit:])
    took: dict[str, list[float]] = {"eval": [], "forward": [], "heads": []}
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as work:
        lm, file = opened(BUNDLED, Path(work)), str(Path(work) / "maps.safetensors")
        with fresh_home():
            shortcut.fit(model=lm, text=mine, runs=work, out=file, quiet=True, **RIVALS)
        fed = fed_rows(lm, other)
        for number in range(rounds):
            took["eval"].append(command(lm, other, file, str(Path(work) / str(number))))
            took["forward"].append(one_forward(lm, fed))
            took["heads"].append(head_products(lm, len(fed), len(KINDS) * lm.layers + 1))
    return report(lm, len(fed), took)


def command(lm: LM, texts: TextSet, file: str, runs: str) -> float:
    """Seconds of `shortcut eval` with an empty cache."""
    with fresh_home():
        start = time.perf_counter()
        shortcut.eval(model=lm, text=texts, shortcut=file, runs=runs, quiet=True)
        return time.perf_counter() - start


def fed_rows(lm: LM, texts: TextSet) -> list[list[int]]:
    """The tokens that the model must see, the shortest row first."""
    spec = EvalSpec(model=lm.name, text=texts.name, shortcut="-")
    request = SampleRequest(spec, lm, texts, 0)
    return sorted(build_token_rows(lm, texts, request.extraction).rows, key=len)


@torch.inference_mode()
def one_forward(lm: LM, rows: list[list[int]]) -> float:
    """Seconds of the plain model's body over the rows."""
    start = time.perf_counter()
    for first in range(0, len(rows), BATCH):
        batch = rows[first : first + BATCH]
        width = max(map(len, batch))
        ids = torch.tensor([r + [lm.pad_id] * (width - len(r)) for r in batch])
        lm.body(input_ids=ids, use_cache=False)
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


def report(lm: LM, tokens: int, took: dict[str, list[float]]) -> dict[str, Any]:
    """The bench's table."""
    mine, forward, heads = (statistics.median(took[n]) for n in ("eval", "forward", "heads"))
    ratio = mine / (forward + heads)
    return {
        "title": "Reading every layer through every map",
        "text": f"{lm.name}, {tokens} new sentences with one token each, kinds {', '.join(KINDS)}, "
        f"all {lm.layers} layers, all pairs for r2; one thread or as many as torch takes "
        f"({torch.get_num_threads()}).",
        "table": [
            row("the whole command against one forward and the bare head products",
                told(spread(took["eval"]), "s"), f"{forward:.1f} + {heads:.1f} s", ratio,
                "<= 1.5x", ratio <= 1.5),
        ],
        "measured": {name: spread(values) for name, values in took.items()},
    }  # fmt: skip
