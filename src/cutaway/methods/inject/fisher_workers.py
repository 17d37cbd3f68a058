"""A Fisher's sums in parts: each worker adds up whole batches of the single pass.

Batches and the way they are added are those of the single pass, so every part is made of the very
squares that it adds. Within a part they are float32 sums as there; parts are added in float64, in
any order. What differs is where float32 rounds: about 1e-7 of an entry.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.model_handle import ModelHandle, pass_resources
from cutaway.methods.inject.examples import Examples
from cutaway.methods.inject.fisher_sums import (
    FisherAccumulator,
    FisherSums,
    choose_and_report_method,
    fisher_batches,
    sum_squared_gradients,
    zero_sums,
)
from cutaway.models.batches import TokenBatch
from cutaway.models.lm import LM


@dataclass(frozen=True, eq=False)
class FisherPart:
    """Some batches of the single pass, and the examples in them alone."""

    number: int
    examples: Examples
    batches: tuple[NDArray[np.int64], ...]
    """Rows of `examples`."""

    @property
    def key(self) -> str:
        """One line of text."""
        return f"fisher part {self.number} ({len(self.examples)} examples)"


@dataclass(frozen=True, eq=False)
class FisherWorker:
    """What a worker needs to add up a part."""

    door: ModelHandle
    way: str
    words: tuple[int, ...] | None

    def __call__(self, part: FisherPart) -> dict[str, NDArray[np.float32]]:
        """The part's sums by weight name, as plain arrays."""
        lm = self.door.open()
        words = None if self.words is None else torch.tensor(self.words, device=lm.device)
        examples, total = replace(part.examples, words=words), zero_sums(lm)
        with FisherAccumulator(lm, examples, total, self.way) as add:
            for rows in part.batches:
                add(TokenBatch(rows, 0, 0))
        return {name: value.cpu().numpy() for name, value in total.items()}


def sum_squared_gradients_on(
    engine: str,
    door: ModelHandle | None,
    lm: LM,
    examples: Examples,
    *,
    console: Console,
    keep: Path | None = None,
) -> FisherSums:
    """`add_up` on an engine; without a way for workers to the model it is done here."""
    if door is None or find_engine(engine).in_process:
        return sum_squared_gradients(lm, examples, console=console, keep=keep)
    total = zero_sums(lm)
    way, why, difference = choose_and_report_method(lm, examples, total, console)
    parts = list(
        split_batches(examples, fisher_batches(lm, examples, way), find_engine(engine).workers())
    )
    words = None if examples.words is None else tuple(examples.words.tolist())
    held = 2 * sum(value.nbytes for value in total.values())
    whole: dict[str, Tensor] = {n: v.cpu().double() for n, v in total.items()}
    with console.progress("fisher", len(examples)) as advance:
        for part, got in run_pieces(
            engine, FisherWorker(door, way, words), parts, key=lambda p: p.key,
            needs=pass_resources(engine, door.device, held), notify=console.print,
        ):  # fmt: skip
            if isinstance(got, PieceFailed):
                got.add_note(f"{part.key}, tried {got.tries} times")
                raise got
            for name, value in got.items():
                whole[name] += torch.from_numpy(np.array(value))
            advance(len(part.examples))
    for name, place in total.items():
        place.copy_(whole[name])
    return FisherSums(total, way, why, difference)


def split_batches(
    examples: Examples, batches: Sequence[TokenBatch], workers: int
) -> Iterator[FisherPart]:
    """One part per worker, of about equal tokens: a part's sums are as large as the model."""
    lengths = np.asarray(examples.lengths)
    weight = np.array([lengths[batch.rows].sum() for batch in batches], dtype=float)
    place = (np.cumsum(weight) - weight) * max(workers, 1) // weight.sum()
    bare = replace(examples, words=None)
    for number in np.unique(place):
        chosen = [batch.rows for batch, at in zip(batches, place, strict=True) if at == number]
        ends = np.cumsum([len(rows) for rows in chosen])
        rows = np.concatenate(chosen)
        within = np.split(np.arange(len(rows)), ends[:-1])
        yield FisherPart(int(number), bare.take(rows), tuple(within))
