"""The cross-products of a fit: in one pass here, or as partial sums that add up to it.

Examples are cut at whole chunks of the single pass, so that every partial sum is made of the very
products that the single pass adds: what remains is the order of a few float64 additions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.engine import PieceFailed, Resources, find_engine, run_pieces
from cutaway.methods.shortcut.maths.moments import (
    CHUNK_ROWS,
    MomentAccumulator,
    Moments,
    StatePair,
    layer_pairs,
    moments_bytes,
    moments_from_state_dict,
)
from cutaway.methods.shortcut.sample import StateSample, stored_states
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.store.activations import ActivationTable


@dataclass(frozen=True)
class ExampleRange:
    """Some examples: the texts they lie in, how many to leave out in front, how many to take."""

    texts: NDArray[np.int64]
    skip: int
    count: int

    @property
    def key(self) -> str:
        """One line of text."""
        return f"cross-products of texts {self.texts[0]}..{self.texts[-1]}"


@dataclass(frozen=True)
class PartialMoments:
    """What a worker needs to add up a stretch: where the states are, and which products."""

    shelf: ActivationTable
    pairs: list[StatePair]
    layers: int
    precise: bool
    chunk: int = CHUNK_ROWS

    def __call__(self, stretch: ExampleRange) -> dict[str, NDArray[np.float64]]:
        """The stretch's moments, as plain named arrays."""
        gatherer = self.gatherer()
        for states in self._examples(stretch):
            gatherer.add(states)
        return {name: value.numpy() for name, value in gatherer.moments().state().items()}

    def gatherer(self) -> MomentAccumulator:
        """An empty sum."""
        cross = torch.float64 if self.precise else torch.float32
        return MomentAccumulator(list(self.pairs), cross=cross, chunk=self.chunk)

    def _examples(self, stretch: ExampleRange) -> Iterator[dict[int, Tensor]]:
        """The stretch's examples and no others, batch by batch."""
        skip, left = stretch.skip, stretch.count
        for _, states in stored_states(self.shelf, stretch.texts, range(self.layers + 1)):
            here = {layer: rows[skip : skip + left] for layer, rows in states.items()}
            size = len(states[0])
            skip, left = max(skip - size, 0), left - len(here[0])
            yield here


def gather_moments(sample: StateSample, spec: FitSpec, console: Console) -> Moments:
    """The cross-products of the training part."""
    pairs = layer_pairs(sample.lm.layers, to_final=spec.layers == "to-final")
    adder = PartialMoments(sample.features.table, pairs, sample.lm.layers, spec.precise)
    if find_engine(spec.engine).in_process:
        return _moments_here(sample, adder, console)
    return _moments_on_workers(sample, adder, spec.engine, console)


def _moments_here(sample: StateSample, adder: PartialMoments, console: Console) -> Moments:
    gatherer = adder.gatherer()
    with console.progress("adding up", len(sample.train)) as advance:
        for part, states in sample.states(sample.train, range(adder.layers + 1)):
            gatherer.add(states)
            advance(len(part))
    return gatherer.moments()


def _moments_on_workers(
    sample: StateSample, adder: PartialMoments, engine: str, console: Console
) -> Moments:
    """Partial sums of the engine's workers, each added once, in the order of the examples."""
    memory = moments_bytes(adder.pairs, sample.lm.width)
    marks = np.array([len(sample.fed.marks[i]) for i in sample.train])
    stretches = list(
        example_ranges(sample.train, marks, find_engine(engine).workers(), adder.chunk)
    )
    total: Moments | None = None
    with console.progress("adding up", len(stretches)) as advance:
        for stretch, got in run_pieces(
            engine, adder, stretches, key=lambda s: s.key, needs=Resources(memory=memory),
            notify=console.print,
        ):  # fmt: skip
            if isinstance(got, PieceFailed):
                got.add_note(f"{stretch.key}, tried {got.tries} times")
                raise got
            part = moments_from_state_dict(
                {name: torch.from_numpy(np.array(v)) for name, v in got.items()}
            )
            total = part if total is None else total + part
            advance()
    assert total is not None, "there are always two texts or more"
    return total


def example_ranges(
    texts: NDArray[np.int64], marks: NDArray[np.int64], workers: int, chunk: int
) -> Iterator[ExampleRange]:
    """One stretch per worker, each a whole number of chunks long but the last.

    A partial sum is as large as the whole one, so more of them than workers would be a waste.
    """
    ends = np.cumsum(marks)
    chunks = -(-int(ends[-1]) // chunk)
    size = -(-chunks // max(workers, 1)) * chunk
    for start in range(0, int(ends[-1]), size):
        stop = min(start + size, int(ends[-1]))
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        before = int(ends[first - 1]) if first else 0
        yield ExampleRange(texts[first : last + 1], start - before, stop - start)
