"""A training step with EWC against one without: the same batch, the same optimiser."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.inject_fisher import random_distilbert, sentences
from bench.report import row, spread, told
from cutaway.methods.inject.penalty import penalty, pull
from cutaway.run.inject.examples import lm_examples, losses
from cutaway.run.plan import Plan, optimizer_of
from cutaway.run.training import take_step

BATCH = 32


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
    examples = lm_examples(lm, sentences(BATCH))
    params = dict(lm.module.named_parameters())
    anchor = {name: p.detach().clone() for name, p in params.items()}
    fisher = {name: torch.rand_like(p) for name, p in params.items()}
    held = {
        "plain": lambda: None,
        "ewc": lambda: pull(params, anchor, fisher, 1e-3),
        "formula": lambda: penalty(params, anchor, fisher, 1e-3),
    }
    plan = Plan(steps=10 * rounds, lr=1e-5)
    lm.module.requires_grad_(True)
    optimizer = optimizer_of(params, plan)
    seconds: dict[str, list[float]] = {name: [] for name in held}
    for step in range(rounds + 1):
        for name, extra in held.items():

            def loss(_: int, extra: Any = extra) -> dict[str, torch.Tensor]:
                own, more = losses(lm, examples, range(len(examples))).mean(), extra()
                return {"loss": own if more is None else own + more}

            start = time.process_time()
            take_step(params, optimizer, loss, plan, step)
            # The first round makes the optimiser's memory and is not counted.
            if step:
                seconds[name].append(time.process_time() - start)
    mine, bare, slow = (statistics.median(seconds[k]) for k in ("ewc", "plain", "formula"))
    shown = {name: told(spread(values), "s") for name, values in seconds.items()}
    return {
        "title": "A training step with EWC",
        "text": f"DistilBERT's size, random weights, all trained, {len(examples)} sentences "
        "a step, AdamW; seconds of processor time on one thread.",
        "table": [
            row("a step with EWC against one without", shown["ewc"], shown["plain"],
                mine / bare, "<= 1.25x", mine / bare <= 1.25),
            row("the same through the plain formula and autograd", shown["formula"],
                shown["plain"], slow / bare),
        ],
        "measured": {name: spread(values) for name, values in seconds.items()},
    }  # fmt: skip
