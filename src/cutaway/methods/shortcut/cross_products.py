"""The cross-products of a fit: from one pass in this process, or as partial sums of workers.

Ranges end where chunks of the single pass end, so every partial sum consists of the same products
that the single pass adds. The results differ only in the order of a few float64 additions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
from cutaway.methods.shortcut.sample import BATCH_TEXTS, StateSample, stored_states
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.store import files
from cutaway.store.activations import ActivationTable
from cutaway.store.snapshots import Snapshots


@dataclass(frozen=True)
class ExampleRange:
    """A range of examples: their texts, how many to skip at the start, how many to take."""

    texts: NDArray[np.int64]
    skip: int
    count: int

    @property
    def key(self) -> str:
        """A name for messages."""
        return f"cross-products of texts {self.texts[0]}..{self.texts[-1]}"

    @property
    def folder(self) -> str:
        """The folder of its snapshots."""
        return f"range-{self.texts[0]}-{self.skip}-{self.count}"


@dataclass(frozen=True)
class PartialMoments:
    """A worker's function: the moments of a range of examples, from their stored states."""

    table: ActivationTable
    pairs: list[StatePair]
    layers: int
    precise: bool
    chunk: int = CHUNK_ROWS
    folder: Path | None = None
    """Where workers save unfinished sums, if their machine has it."""

    def __call__(self, examples: ExampleRange) -> dict[str, NDArray[np.float64]]:
        """The moments as named arrays."""
        accumulator = self.accumulator()
        shared = self.folder if self.folder is not None and self.folder.is_dir() else None
        snapshots = Snapshots(shared and shared / examples.folder, Console(quiet=True))
        restore_sums(accumulator, snapshots)
        for states in self._batches(examples):
            if not accumulator.skip(len(states[0])):
                accumulator.add(states)
                save_sums(accumulator, snapshots, at_end=accumulator.rows == examples.count)
        return {name: v.numpy() for name, v in accumulator.moments().state_dict().items()}

    def accumulator(self) -> MomentAccumulator:
        """An empty sum."""
        cross = torch.float64 if self.precise else torch.float32
        return MomentAccumulator(list(self.pairs), cross=cross, chunk=self.chunk)

    def _batches(self, examples: ExampleRange) -> Iterator[dict[int, Tensor]]:
        """The states of exactly these examples, batch by batch."""
        skip, left = examples.skip, examples.count
        for _, states in stored_states(self.table, examples.texts, range(self.layers + 1)):
            batch = {layer: rows[skip : skip + left] for layer, rows in states.items()}
            skip, left = max(skip - len(states[0]), 0), left - len(batch[0])
            yield batch


def gather_moments(
    sample: StateSample, spec: FitSpec, console: Console, folder: Path | None = None
) -> Moments:
    """The cross-products of the training texts; unfinished sums are saved in `folder`."""
    pairs = layer_pairs(sample.lm.layers, spec.layers)
    partial = PartialMoments(sample.table, pairs, sample.lm.layers, spec.precise)
    if find_engine(spec.engine).in_process:
        return _moments_here(sample, partial, console, Snapshots(folder, console))
    if folder is not None:
        files.make_folder(folder)
        partial = replace(partial, folder=folder.absolute())
    return _moments_on_workers(sample, partial, spec.engine, console)


def _moments_here(
    sample: StateSample, partial: PartialMoments, console: Console, snapshots: Snapshots
) -> Moments:
    accumulator, texts = partial.accumulator(), sample.train
    restore_sums(accumulator, snapshots)
    marks = np.array([len(sample.full.marks[i]) for i in texts])
    with console.progress("cross-products", len(texts)) as advance:
        start = 0
        while accumulator.skip(int(marks[start : start + BATCH_TEXTS].sum())) and start < len(
            texts
        ):
            start += BATCH_TEXTS
        advance(min(start, len(texts)))
        for part, states in sample.states(texts[start:], range(partial.layers + 1)):
            accumulator.add(states)
            advance(len(part))
            save_sums(accumulator, snapshots, at_end=part[-1] == texts[-1])
    return accumulator.moments()


def restore_sums(accumulator: MomentAccumulator, snapshots: Snapshots) -> None:
    """Load the newest snapshot of the sums, if there is one."""
    saved = snapshots.load()
    if saved is not None:
        accumulator.load_state_dict({name: saved.tensor(name).clone() for name in saved.names})


def save_sums(accumulator: MomentAccumulator, snapshots: Snapshots, *, at_end: bool) -> None:
    """Save the sums when it is time."""
    if snapshots.due(at_end=at_end):
        snapshots.save(accumulator.rows, accumulator.state_dict())


def _moments_on_workers(
    sample: StateSample, partial: PartialMoments, engine: str, console: Console
) -> Moments:
    """Partial sums of the engine's workers, each added once, in the order of the examples."""
    memory = moments_bytes(partial.pairs, sample.lm.width)
    marks = np.array([len(sample.full.marks[i]) for i in sample.train])
    workers = find_engine(engine).workers()
    ranges = list(example_ranges(sample.train, marks, workers, partial.chunk))
    total: Moments | None = None
    with console.progress("cross-products", len(ranges)) as advance:
        for examples, sums in run_pieces(
            engine, partial, ranges, key=lambda one: one.key, needs=Resources(memory=memory),
            notify=console.print,
        ):  # fmt: skip
            if isinstance(sums, PieceFailed):
                sums.add_note(f"{examples.key}, tried {sums.tries} times")
                raise sums
            tensors = {name: torch.from_numpy(np.array(value)) for name, value in sums.items()}
            part = moments_from_state_dict(tensors)
            total = part if total is None else total + part
            advance()
    assert total is not None, "there are always two texts or more"
    return total


def example_ranges(
    texts: NDArray[np.int64], marks: NDArray[np.int64], workers: int, chunk: int
) -> Iterator[ExampleRange]:
    """One range per worker, each an exact number of chunks long except the last.

    A partial sum is as large as the total, so more of them than workers would be a waste.
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
