"""The Fisher: ours against a loop of one example at a time, as it is and padded to 512 tokens.

All ways use the same examples on one thread and give the same numbers; the padded loop is timed on
one of them. Seconds are processor time, which a busy machine disturbs least.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.report import row, spread, told
from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.methods.inject.examples import Examples, lm_examples
from cutaway.methods.inject.fisher_sums import (
    FisherAccumulator,
    choose_method,
    fisher_batches,
    zero_sums,
)
from cutaway.models.lm import LM
from cutaway.models.load import open_model

PADDED = 512
QUIET = Console(quiet=True)


def run(quick: bool, rows: int | None = None, rounds: int = 3) -> dict[str, Any]:
    """Times per example and agreement, for each model."""
    count = 8 if quick else rows or 48
    rounds = 1 if quick else min(rounds, 3)
    texts = sentences(count)
    table, kept = [], {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in ("DistilBERT's size, random",) if quick else MODELS:
            with tempfile.TemporaryDirectory() as folder:
                lm = MODELS[name](Path(folder), quick)
                found = compare(lm, lm_examples(lm, texts), rounds)
            table += rows_of(name, found)
            kept[name] = {key: spread(values) for key, values in found["seconds"].items()}
    finally:
        torch.set_num_threads(threads)
    return {
        "title": "Fisher of a model",
        "text": f"{count} sentences of the bundled docs, seconds of processor time per example on "
        "one thread. The loop is the shortest one can write with torch: backward, square, add. "
        f"Padded to {PADDED}: one of the sentences timed. Before it starts, ours checks two "
        "examples against autograd; that is paid once per run and stands in a line of its own.",
        "table": table,
        "measured": kept,
    }


def sentences(count: int) -> TextSet:
    """Sentences of the bundled documentation."""
    return load_text_set("docs", limit=count, seed=0)


def compare(lm: LM, examples: Examples, rounds: int) -> dict[str, Any]:
    """Seconds per example of each way in turn, and the largest relative difference."""
    seconds: dict[str, list[float]] = {"check": [], "ours": [], "loop": [], "padded": []}
    total = zero_sums(lm)
    for _ in range(rounds):
        # The check wants sums that are 0, as a run has them, and leaves them so.
        for value in total.values():
            value.zero_()
        spent, method = timed(lambda: choose_method(lm, examples, total, QUIET))
        way, why = method.way, method.reason
        seconds["check"].append(spent)
        spent, _ = timed(lambda way=way: add_all(lm, examples, total, way))
        seconds["ours"].append(spent / len(examples))
        spent, theirs = timed(lambda: loop(lm, examples, None))
        seconds["loop"].append(spent / len(examples))
        spent, _ = timed(lambda: loop(lm, examples.take([0]), PADDED))
        seconds["padded"].append(spent)
    return {"seconds": seconds, "worst": worst_of(total, theirs), "way": why or way}


def add_all(lm: LM, examples: Examples, total: dict[str, torch.Tensor], way: str) -> None:
    """Every batch of the examples, added up."""
    with FisherAccumulator(lm, examples, total, way) as add:
        for batch in fisher_batches(lm, examples, way):
            add(batch)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what came of it."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def worst_of(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """The largest relative difference; the keys' biases are left out: their gradient is 0."""
    return max(
        float((mine[n] - v).norm() / v.norm().clamp(min=1e-12))
        for n, v in theirs.items()
        if not n.endswith(("k_lin.bias", "key.bias"))
    )


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
    every = found["seconds"]
    mine, one, wide, check = (
        statistics.median(every[k]) for k in ("ours", "loop", "padded", "check")
    )
    shown = {key: told(spread(values), "s") for key, values in every.items()}
    return [
        row(f"{name}: against the loop ({found['way']})", shown["ours"], shown["loop"],
            one / mine, ">= 3x", one / mine >= 3),
        row(f"{name}: against the loop padded to {PADDED}", shown["ours"], shown["padded"],
            wide / mine, ">= 20x", wide / mine >= 20),
        row(f"{name}: the check before the start, once per run",
            f"{shown['check']}, as much as {check / one:.1f} examples of the loop"),
        row(f"{name}: relative difference from the loop", f"{found['worst']:.1e}",
            bar="<= 1e-5", met=found["worst"] <= 1e-5),
    ]  # fmt: skip


def random_distilbert(folder: Path, quick: bool) -> LM:
    """Random weights in DistilBERT's shape, and a tokenizer of the bundled docs."""
    from tests.tiny import tiny_tokenizer
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    size = {"dim": 64, "hidden_dim": 128, "n_heads": 4} if quick else {}
    tokenizer = tiny_tokenizer("bert", load_text_set("docs").texts, size=30_522)
    config = AutoConfig.for_model("distilbert", **size)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder) is not None
    return open_model(str(folder), check=False)


def _smollm(folder: Path, quick: bool) -> LM:
    return open_model("smollm2-135m", check=False)


MODELS = {"DistilBERT's size, random": random_distilbert, "SmolLM2-135M": _smollm}
