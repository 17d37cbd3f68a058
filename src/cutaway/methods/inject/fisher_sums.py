"""Sums of squared per-example gradients, batch by batch, in this process or on workers.

On workers, each adds up whole batches of the single-process pass, so that the same squares are
summed; it saves its unfinished sums if it has the run's folder. Sums of one worker are float32 as
in a single process, and are added in float64 in any order: results differ only by float32 rounding,
about 1e-7 of an entry.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.model_handle import ModelHandle, pass_resources
from cutaway.methods.inject.examples import Examples, example_losses
from cutaway.methods.inject.maths.example_hooks import PerExampleHooks
from cutaway.methods.inject.maths.fisher_rules import NoGradientRule
from cutaway.methods.inject.maths.loop import FisherSample, add_by_autograd, gradient_hooks
from cutaway.methods.inject.spec import FISHER_TOKENS
from cutaway.models.batches import TokenBatch, TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.rounding import disturbed, judge
from cutaway.store import files
from cutaway.store.snapshots import Snapshots

# Passes with disturbed inputs that measure the rounding noise of gradients.
NOISE_DRAWS = 2
# The most logits, and the most padded tokens, in a batch.
MAX_LOGITS, MAX_TOKENS = 1 << 25, FISHER_TOKENS


@dataclass(frozen=True)
class FisherMethod:
    """How squared gradients are computed."""

    way: str
    """`batched`, or `loop`: one example after the other."""
    reason: str = ""
    """Why it is a loop; empty when batched."""
    difference: float | None = None
    """Relative difference between the batched method and plain autograd on two examples, of the
    weight where it is largest compared with rounding."""
    noise: float | None = None
    """The rounding noise of that weight's squared gradients."""


@dataclass(frozen=True)
class FisherSums:
    """Sums of squared gradients by weight name, and how they were computed."""

    total: dict[str, Tensor]
    method: FisherMethod

    def mean(self, examples: int) -> dict[str, Tensor]:
        """The sums divided by the number of examples, in place."""
        for value in self.total.values():
            value /= examples
        return self.total


def sum_squared_gradients(
    lm: LM,
    examples: Examples,
    *,
    console: Console,
    checkpoint: Path | None = None,
    batched: bool = True,
) -> FisherSums:
    """The sum over examples of the squared gradient of each example's own loss.

    Unfinished sums are saved in the folder `checkpoint`, if one is given.
    """
    total = zero_sums(lm)
    method = FisherMethod("loop", "requested")
    if batched:
        method = choose_method(lm, examples, total, console)
    batches = fisher_batches(lm, examples, method.way)
    snapshots = Snapshots(checkpoint, console)
    with console.progress("fisher", len(examples)) as advance:
        add_batches(lm, examples, total, batches, method.way, snapshots, advance)
    return FisherSums(total, method)


def add_batches(
    lm: LM,
    examples: Examples,
    total: dict[str, Tensor],
    batches: Sequence[TokenBatch],
    way: str,
    snapshots: Snapshots,
    advance: Callable[[int], None],
) -> None:
    """Add the squared gradients of all batches to `total`, from the newest snapshot on."""
    start = _resume_sums(snapshots, total, way)
    advance(sum(len(batch.rows) for batch in batches[:start]))
    with FisherAccumulator(lm, examples, total, way) as add:
        for done, batch in enumerate(batches[start:], start + 1):
            add(batch)
            advance(len(batch.rows))
            if snapshots.due(at_end=done == len(batches)):
                snapshots.save(done, total, {"done": done, "way": way})


def zero_sums(lm: LM) -> dict[str, Tensor]:
    """A float32 tensor of zeros per weight."""
    return {n: torch.zeros_like(p, dtype=torch.float32) for n, p in lm.params().items()}


def fisher_batches(lm: LM, examples: Examples, way: str) -> list[TokenBatch]:
    """Batches of nearly equal length, always the same ones."""
    size = 1
    if way == "batched":
        words = lm.vocab if examples.words is None else len(examples.words)
        size = max(32, min(MAX_TOKENS, MAX_LOGITS // words))
    return [batch for batch, _ in batches_by_length(examples.lengths, TokenBudget(fixed=size))]


class FisherAccumulator:
    """Adds the squared gradients of one batch after the other to `total`."""

    def __init__(self, lm: LM, examples: Examples, total: Mapping[str, Tensor], way: str) -> None:
        self.lm, self.examples, self.total = lm, examples, total
        self.hooks = PerExampleHooks(lm.module, total) if way == "batched" else None

    def __enter__(self) -> "FisherAccumulator":
        if self.hooks is not None:
            self.hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self.hooks is not None:
            self.hooks.__exit__()

    def __call__(self, batch: TokenBatch) -> None:
        rows = batch.rows.tolist()
        if self.hooks is None:
            for row in rows:
                add_by_autograd(self.lm.module, self.total, self._loss([row]))
            return
        self.hooks.backward(self.hooks.forward(len(rows), self._loss(rows)))

    def _loss(self, rows: list[int]) -> Callable[[], Tensor]:
        return lambda: example_losses(self.lm, self.examples, rows)


def choose_method(
    lm: LM, examples: Examples, total: Mapping[str, Tensor], console: Console
) -> FisherMethod:
    """Batched if it agrees with plain autograd on two of these examples up to rounding."""
    method = _test_batched(lm, examples, total)
    for value in total.values():
        value.zero_()
    if method.reason:
        console.print(f"Computing gradients one example at a time (slower): {method.reason}.")
    return method


def _test_batched(lm: LM, examples: Examples, total: Mapping[str, Tensor]) -> FisherMethod:
    order = sorted(range(len(examples)), key=lambda i: len(examples.rows[i]))
    # Of different lengths, so that padding is tested too.
    two = examples.take([order[0], order[len(order) // 2]])
    try:
        with FisherAccumulator(lm, two, total, "batched") as add:
            add(TokenBatch(torch.arange(2).numpy(), 0, 0))
    except (NoGradientRule, RuntimeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return FisherMethod("loop", lines[0][:200].rstrip("."))
    sample = FisherSample(total)
    differences = sample_by_autograd(lm, two, sample).differences(sample.take(total))
    # At least that of squared sums over that many tokens.
    unit = max(torch.finfo(p.dtype).eps for p in lm.module.parameters() if p.is_floating_point())
    noise = dict.fromkeys(differences, 2 * unit * math.sqrt(sum(two.lengths)))
    for draw in range(NOISE_DRAWS):
        with disturbed(lm, draw):
            again = sample_by_autograd(lm, two, FisherSample(total))
        for name, value in sample.differences(again.values).items():
            noise[name] = max(noise[name], value)
    name = max(noise, key=lambda n: differences[n] / max(noise[n], 1e-300))
    difference, rounding = differences[name], noise[name]
    if judge(difference, rounding) != "wrong":
        return FisherMethod("batched", "", difference, rounding)
    reason = (
        f"per-example gradients of {name} differ by {difference:.1e} when batched, the rounding "
        f"noise is {rounding:.1e}"
    )
    return FisherMethod("loop", reason, difference, rounding)


def sample_by_autograd(lm: LM, examples: Examples, sample: FisherSample) -> FisherSample:
    """The sample with the squared gradients of all examples, one after the other."""
    for row in range(len(examples)):
        with gradient_hooks(lm.module, sample.add), torch.enable_grad():
            example_losses(lm, examples, [row]).sum().backward()  # type: ignore[no-untyped-call]
    return sample


def _resume_sums(snapshots: Snapshots, total: Mapping[str, Tensor], way: str) -> int:
    """The number of batches in the snapshot, whose sums are now in `total`."""
    saved = snapshots.load()
    if saved is None or saved.meta.get("way") != way or set(saved.names) != set(total):
        return 0
    for name, value in total.items():
        value.copy_(saved.tensor(name))
    return int(saved.meta["done"])


def seconds_per_token(lm: LM, examples: Examples) -> float:
    """Seconds per token, from a few examples of median length."""
    order = sorted(range(len(examples)), key=lambda i: len(examples.rows[i]))
    middle = len(order) // 2
    few = examples.take(order[max(middle - 4, 0) : middle + 4])
    total, quiet = zero_sums(lm), Console(quiet=True)
    way = choose_method(lm, few, total, quiet).way
    start = time.monotonic()
    with FisherAccumulator(lm, few, total, way) as add:
        for batch in fisher_batches(lm, few, way):
            add(batch)
    return (time.monotonic() - start) / max(sum(few.lengths), 1)


@dataclass(frozen=True, eq=False)
class FisherPart:
    """Some batches of the pass, and only the examples in them."""

    number: int
    examples: Examples
    batches: tuple[NDArray[np.int64], ...]
    """Rows of `examples`."""
    of: int = 1
    """The number of workers that the pass was split for."""

    @property
    def key(self) -> str:
        """The name of the part."""
        return f"fisher part {self.number} ({len(self.examples)} examples)"

    @property
    def folder(self) -> str:
        """The folder of its snapshots; with another number of workers a part has other examples."""
        return f"part-{self.number}-of-{self.of}"


@dataclass(frozen=True, eq=False)
class FisherWorker:
    """What a worker needs to sum the squared gradients of a part."""

    model: ModelHandle
    way: str
    words: tuple[int, ...] | None
    folder: Path | None
    """Where unfinished sums are saved, if this machine has it."""

    def __call__(self, part: FisherPart) -> dict[str, NDArray[np.float32]]:
        """The part's sums by weight name, as arrays."""
        lm = self.model.open()
        words = None if self.words is None else torch.tensor(self.words, device=lm.device)
        examples, total = replace(part.examples, words=words), zero_sums(lm)
        batches = [TokenBatch(rows, 0, 0) for rows in part.batches]
        shared = self.folder if self.folder is not None and self.folder.is_dir() else None
        snapshots = Snapshots(shared and shared / part.folder, Console(quiet=True))
        add_batches(lm, examples, total, batches, self.way, snapshots, lambda _: None)
        return {name: value.cpu().numpy() for name, value in total.items()}


def sum_squared_gradients_on(
    engine: str,
    handle: ModelHandle | None,
    lm: LM,
    examples: Examples,
    *,
    console: Console,
    checkpoint: Path | None = None,
) -> FisherSums:
    """`sum_squared_gradients` on an engine; in this process if workers can't open the model."""
    if handle is None or find_engine(engine).in_process:
        return sum_squared_gradients(lm, examples, console=console, checkpoint=checkpoint)
    total = zero_sums(lm)
    method = choose_method(lm, examples, total, console)
    batches = fisher_batches(lm, examples, method.way)
    parts = list(split_batches(examples, batches, find_engine(engine).workers()))
    words = None if examples.words is None else tuple(examples.words.tolist())
    size = 2 * sum(value.nbytes for value in total.values())
    if checkpoint is not None:
        files.make_folder(checkpoint)
    folder = checkpoint and checkpoint.absolute()
    sums = {n: v.cpu().double() for n, v in total.items()}
    with console.progress("fisher", len(examples)) as advance:
        for part, got in run_pieces(
            engine,
            FisherWorker(handle, method.way, words, folder),
            parts,
            key=lambda p: p.key,
            needs=pass_resources(engine, handle.device, size),
            notify=console.print,
        ):
            if isinstance(got, PieceFailed):
                got.add_note(f"{part.key}, tried {got.tries} times")
                raise got
            for name, array in got.items():
                sums[name] += torch.from_numpy(np.array(array))
            advance(len(part.examples))
    for name, value in total.items():
        value.copy_(sums[name])
    return FisherSums(total, method)


def split_batches(
    examples: Examples, batches: Sequence[TokenBatch], workers: int
) -> Iterator[FisherPart]:
    """One part per worker, with about the same number of tokens each.

    Not more parts than workers, because the sums of a part are as large as the model.
    """
    lengths = np.asarray(examples.lengths)
    tokens = np.array([lengths[batch.rows].sum() for batch in batches], dtype=float)
    part_of_batch = (np.cumsum(tokens) - tokens) * max(workers, 1) // tokens.sum()
    without_words = replace(examples, words=None)
    for number in np.unique(part_of_batch):
        chosen = [b.rows for b, part in zip(batches, part_of_batch, strict=True) if part == number]
        ends = np.cumsum([len(rows) for rows in chosen])
        rows = np.concatenate(chosen)
        within = np.split(np.arange(len(rows)), ends[:-1])
        yield FisherPart(int(number), without_words.take(rows), tuple(within), workers)
