"""Squared gradients of many examples, added up batch by batch, and kept on the way."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Corrupt, Missing
from cutaway.methods.inject.examples import Examples, example_losses
from cutaway.methods.inject.maths.example_hooks import PerExampleHooks
from cutaway.methods.inject.maths.fisher_rules import NoGradientRule
from cutaway.methods.inject.maths.loop import FisherSample, add_by_autograd, gradient_hooks
from cutaway.models.batches import TokenBatch, TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.store.artefacts import load_artefact, save_artefact

# The batched way must agree with plain autograd this well on two examples, or isn't used.
TOLERANCE = 1e-4
# Seconds between checkpoints of the sums.
SAVE_SECONDS = 120.0
# Numbers in a batch's logits, and padded tokens in a batch.
MAX_LOGITS, MAX_TOKENS = 1 << 25, 512


@dataclass(frozen=True)
class FisherSums:
    """Sums of squared gradients by weight name, and how they were made."""

    total: dict[str, Tensor]
    way: str
    """batched, or loop: one example after the other."""
    why: str
    """Why it went example by example; empty when it didn't."""
    difference: float | None
    """How far the batched way was from plain autograd on the first two examples."""


def sum_squared_gradients(
    lm: LM, examples: Examples, *, console: Console, keep: Path | None = None, batched: bool = True
) -> FisherSums:
    """The sum over examples of the squared gradient of each example's own loss."""
    total = zero_sums(lm)
    way, why, difference = "loop", "asked", None
    if batched:
        way, why, difference = choose_and_report_method(lm, examples, total, console)
    batches = fisher_batches(lm, examples, way)
    start = _resume_sums(keep, total, way, console)
    saved = time.monotonic()
    with console.progress("fisher", len(examples)) as advance:
        advance(sum(len(batch.rows) for batch in batches[:start]))
        with FisherAccumulator(lm, examples, total, way) as add:
            for number, batch in enumerate(batches[start:], start):
                add(batch)
                advance(len(batch.rows))
                if keep is not None and time.monotonic() - saved > SAVE_SECONDS:
                    save_artefact(keep, total, {"done": number + 1, "way": way})
                    saved = time.monotonic()
    return FisherSums(total, way, why, difference)


def choose_and_report_method(
    lm: LM, examples: Examples, total: dict[str, Tensor], console: Console
) -> tuple[str, str, float | None]:
    """`choose_way`, and the slower one is said."""
    way, why, difference = choose_method(lm, examples, total)
    if why:
        console.print(f"Going example by example, which is slower: {why}.")
    return way, why, difference


def zero_sums(lm: LM) -> dict[str, Tensor]:
    """One float32 zero per weight."""
    return {n: torch.zeros_like(p, dtype=torch.float32) for n, p in lm.params().items()}


def fisher_batches(lm: LM, examples: Examples, way: str) -> list[TokenBatch]:
    """Batches of nearly equal length; the same ones however often this is asked."""
    if way == "loop":
        return [batch for batch, _ in batches_by_length(examples.lengths, TokenBudget(fixed=1))]
    words = lm.vocab if examples.words is None else len(examples.words)
    size = max(32, min(MAX_TOKENS, MAX_LOGITS // words))
    return [batch for batch, _ in batches_by_length(examples.lengths, TokenBudget(fixed=size))]


class FisherAccumulator:
    """Adds one batch after the other in the chosen way."""

    def __init__(self, lm: LM, examples: Examples, total: Mapping[str, Tensor], way: str) -> None:
        self.lm, self.examples, self.total = lm, examples, total
        self.watch = PerExampleHooks(lm.module, total) if way == "batched" else None

    def __enter__(self) -> "FisherAccumulator":
        if self.watch is not None:
            self.watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self.watch is not None:
            self.watch.__exit__()

    def __call__(self, batch: TokenBatch) -> None:
        rows = batch.rows.tolist()
        if self.watch is None:
            for row in rows:
                add_by_autograd(self.lm.module, self.total, self._loss([row]))
            return
        self.watch.backward(self.watch.forward(len(rows), self._loss(rows)))

    def _loss(self, rows: list[int]) -> Callable[[], Tensor]:
        return lambda: example_losses(self.lm, self.examples, rows)


def choose_method(
    lm: LM, examples: Examples, total: dict[str, Tensor]
) -> tuple[str, str, float | None]:
    """Batched if it agrees with plain autograd on two examples of this very run, else loop."""
    order = sorted(range(len(examples)), key=lambda i: len(examples.rows[i]))
    # Of different lengths: padding must not matter either.
    two = examples.take([order[0], order[len(order) // 2]])
    try:
        with FisherAccumulator(lm, two, total, "batched") as add:
            add(TokenBatch(torch.arange(2).numpy(), 0, 0))
    except (NoGradientRule, RuntimeError) as error:
        _set_to_zero(total)
        return "loop", _first_line(error), None
    difference, name = _difference_from_autograd(lm, two, total)
    _set_to_zero(total)
    if not difference <= TOLERANCE:
        why = f"per-example gradients of {name} differ by {difference:.1e} when batched"
        return "loop", why, difference
    return "batched", "", difference


def _difference_from_autograd(
    lm: LM, two: Examples, total: Mapping[str, Tensor]
) -> tuple[float, str]:
    """The largest relative difference from plain autograd, and where it is."""
    sketch = FisherSample(total)
    for row in range(len(two)):
        with gradient_hooks(lm.module, sketch.add), torch.enable_grad():
            example_losses(lm, two, [row]).sum().backward()  # type: ignore[no-untyped-call]
    return sketch.difference(total)


def _set_to_zero(total: Mapping[str, Tensor]) -> None:
    for value in total.values():
        value.zero_()


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__


def _resume_sums(keep: Path | None, total: Mapping[str, Tensor], way: str, console: Console) -> int:
    """How many batches are in the sums that were kept; `total` holds them."""
    if keep is None or not keep.is_file():
        return 0
    try:
        kept = load_artefact(keep)
    except (Corrupt, Missing):
        return 0
    if kept.meta.get("way") != way or set(kept.names) != set(total):
        return 0
    for name, value in total.items():
        value.copy_(kept.tensor(name))
    done: Any = kept.meta["done"]
    console.print(f"Going on behind batch {done}.")
    return int(done)


def seconds_per_token(lm: LM, examples: Examples) -> float:
    """Seconds per token, from a few examples of middling length."""
    order = sorted(range(len(examples)), key=lambda i: len(examples.rows[i]))
    middle = len(order) // 2
    few = examples.take(order[max(middle - 4, 0) : middle + 4])
    start = time.monotonic()
    sum_squared_gradients(lm, few, console=Console(quiet=True))
    # The check of two examples against plain autograd is paid once; leave it out roughly.
    return 0.5 * (time.monotonic() - start) / max(sum(few.lengths), 1)
