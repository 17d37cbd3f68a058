"""The Fisher: ours against a loop of one example at a time, as it is and padded to 512 tokens.

All ways use the same examples and give the same numbers. The padded loop takes minutes, so it is
timed on a few of the examples and counted for all, which is said in the table.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.report import row, spread
from cutaway.core.textset import TextSet
from cutaway.data.load import load
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.run.inject.examples import Examples, lm_examples
from cutaway.run.inject.sums import add_up
from cutaway.run.record import measured
from cutaway.run.screen import Screen

QUIET = Screen(quiet=True)
PADDED = 512


def run(quick: bool, rows: int | None = None, rounds: int = 5) -> dict[str, Any]:
    """Times per example, agreement, memory, for each model."""
    count = 8 if quick else rows or 64
    rounds = 1 if quick else min(rounds, 3)
    texts = sentences(count)
    table, measured_ = [], {}
    for name in ("DistilBERT's size, random",) if quick else MODELS:
        with tempfile.TemporaryDirectory() as folder:
            lm = MODELS[name](Path(folder), quick)
            found = compare(lm, lm_examples(lm, texts), rounds)
        table += rows_of(name, found)
        measured_[name] = {key: spread(values) for key, values in found["seconds"].items()}
    return {
        "title": "Fisher of a model",
        "text": f"{count} sentences of the bundled docs; seconds per example. The loop is the "
        "shortest one can write with torch: backward, square, add. Ours checks two examples "
        f"against autograd first; that is in its time. Padded to {PADDED}: two examples timed.",
        "table": table,
        "measured": measured_,
    }


def sentences(count: int) -> TextSet:
    """Sentences of the bundled documentation."""
    return load("docs", limit=count, seed=0)


def compare(lm: LM, examples: Examples, rounds: int) -> dict[str, Any]:
    """Seconds per example of each way, the largest relative difference, memory besides."""
    seconds: dict[str, list[float]] = {"ours": [], "loop": [], "padded": []}
    few = examples.take(range(min(16, len(examples))))
    for _ in range(rounds):
        with measured() as meter:
            start = time.perf_counter()
            mine = add_up(lm, examples, screen=QUIET)
            seconds["ours"].append((time.perf_counter() - start) / len(examples))
        start = time.perf_counter()
        theirs = loop(lm, few, None)
        seconds["loop"].append((time.perf_counter() - start) / len(few))
    start = time.perf_counter()
    loop(lm, few.take([0, 1]), PADDED)
    seconds["padded"].append((time.perf_counter() - start) / 2)
    same = add_up(lm, few, screen=QUIET).total
    worst = max(float((same[n] - v).norm() / v.norm().clamp(min=1e-12)) for n, v in theirs.items()
                if not n.endswith(("k_lin.bias", "key.bias")))  # fmt: skip
    return {"seconds": seconds, "worst": worst, "way": mine.way, "memory": meter.peak_memory_mb}


def loop(lm: LM, examples: Examples, width: int | None) -> dict[str, torch.Tensor]:
    """Backward of one example, square, add; padded to `width` when given."""
    module = lm.module.requires_grad_(True)
    total = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    for row_, places, targets in zip(examples.rows, examples.places, examples.targets, strict=True):
        ids, labels = torch.tensor([row_]), torch.full((1, len(row_)), -100)
        labels[0, places if lm.kind == "masked" else [p + 1 for p in places]] = torch.tensor(
            targets
        )
        given = {"input_ids": ids, "labels": labels}
        if width is not None:
            short = width - len(row_)
            given = {
                "input_ids": torch.nn.functional.pad(ids, (0, short), value=lm.pad_id),
                "labels": torch.nn.functional.pad(labels, (0, short), value=-100),
                "attention_mask": torch.nn.functional.pad(torch.ones_like(ids), (0, short)),
            }
        module.zero_grad()
        module(**given).loss.backward()
        for name, p in module.named_parameters():
            if p.grad is not None:
                total[name] += p.grad**2
    module.zero_grad()
    module.requires_grad_(False)
    return total


def rows_of(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of one model."""
    mine, one, wide = (statistics.median(found["seconds"][k]) for k in ("ours", "loop", "padded"))
    return [
        row(f"{name}: against the loop ({found['way']})", f"{mine:.3f} s", f"{one:.3f} s",
            one / mine, ">= 3x", one / mine >= 3),
        row(f"{name}: against the loop padded to {PADDED}", f"{mine:.3f} s", f"{wide:.2f} s",
            wide / mine, ">= 20x", wide / mine >= 20),
        row(f"{name}: relative difference from the loop", f"{found['worst']:.1e}",
            bar="<= 1e-5", met=found["worst"] <= 1e-5),
        row(f"{name}: peak memory of the process", f"{found['memory']:.0f} MB"),
    ]  # fmt: skip


def random_distilbert(folder: Path, quick: bool) -> LM:
    """Random weights in DistilBERT's shape, and a tokenizer of the bundled docs."""
    from tests.tiny import tiny_tokenizer
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    size = {"dim": 64, "hidden_dim": 128, "n_heads": 4} if quick else {}
    tokenizer = tiny_tokenizer("bert", load("docs").texts, size=30_522)
    config = AutoConfig.for_model("distilbert", **size)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder) is not None
    return open_model(str(folder), check=False)


def _smollm(folder: Path, quick: bool) -> LM:
    return open_model("smollm2-135m", check=False)


MODELS = {"DistilBERT's size, random": random_distilbert, "SmolLM2-135M": _smollm}
