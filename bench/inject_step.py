"""A training step with EWC against one without: the same batch, the same optimiser."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.inject_fisher import random_distilbert, sentences
from bench.report import row, spread, told
from cutaway.methods.inject.examples import Examples, example_losses, lm_examples
from cutaway.methods.inject.maths.penalty import fused_penalty, penalty
from cutaway.models.lm import LM
from cutaway.training.loop import training_step
from cutaway.training.plan import TrainingPlan, make_optimizer

BATCHES: dict[str, tuple[int, int | None]] = {
    "16 sentences": (16, None),
    "16 rows of 12 tokens, as sums are": (16, 12),
}
"""Rows in a step, and the tokens they are cut to."""


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """Seconds of a step without anything, with EWC, and with EWC as the formula says it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(quick, 2 if quick else max(rounds, 5))
    finally:
        torch.set_num_threads(threads)


def _run(quick: bool, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lm = random_distilbert(Path(folder), quick)
    table, kept = [], {}
    for name, (rows, tokens) in BATCHES.items():
        seconds = take_turns(lm, lm_examples(lm, sentences(rows), limit=tokens), rounds)
        table += rows_of(name, seconds)
        kept[name] = {way: spread(values) for way, values in seconds.items()}
    return {
        "title": "A training step with EWC",
        "text": "DistilBERT's size, random weights, all trained, AdamW; seconds of processor time "
        "on one thread. Short rows are the hard case: the penalty costs the same for any batch.",
        "table": table,
        "measured": kept,
    }


def take_turns(lm: LM, examples: Examples, rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, the three ways in turn."""
    params = dict(lm.module.named_parameters())
    anchor = {name: p.detach().clone() for name, p in params.items()}
    fisher = {name: torch.rand_like(p) for name, p in params.items()}
    held = {
        "plain": lambda: None,
        "ewc": lambda: fused_penalty(params, anchor, fisher, 1e-3),
        "formula": lambda: penalty(params, anchor, fisher, 1e-3),
    }
    plan = TrainingPlan(steps=10 * rounds, lr=1e-5)
    lm.module.requires_grad_(True)
    optimizer = make_optimizer(params, plan)
    seconds: dict[str, list[float]] = {name: [] for name in held}
    for step in range(rounds + 1):
        for name, extra in held.items():

            def loss(_: int, extra: Any = extra) -> dict[str, torch.Tensor]:
                own, more = example_losses(lm, examples, range(len(examples))).mean(), extra()
                return {"loss": own if more is None else own + more}

            start = time.process_time()
            training_step(params, optimizer, loss, plan, step)
            # The first round makes the optimiser's memory and is not counted.
            if step:
                seconds[name].append(time.process_time() - start)
    return seconds


def rows_of(name: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The lines of one batch."""
    mine, bare, slow = (statistics.median(seconds[k]) for k in ("ewc", "plain", "formula"))
    shown = {way: told(spread(values), "s") for way, values in seconds.items()}
    return [
        row(f"{name}: a step with EWC against one without", shown["ewc"], shown["plain"],
            mine / bare, "<= 1.25x", mine / bare <= 1.25),
        row(f"{name}: the same through the plain formula and autograd", shown["formula"],
            shown["plain"], slow / bare),
    ]  # fmt: skip
