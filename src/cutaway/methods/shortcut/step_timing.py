"""Seconds that a model's segments, its output head and a draft take on this machine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cutaway.methods.shortcut.decode import Drafter
from cutaway.methods.shortcut.segments import SegmentedModel, segmented
from cutaway.models.lm import LM


@dataclass(frozen=True)
class StepTimes:
    """Seconds of all blocks and of the head, by number of tokens processed together."""

    blocks: dict[int, float]
    head: dict[int, float]
    overhead: float
    """Fixed cost of a segment: embedding, masks, positions."""

    def segment(self, share: float, tokens: int) -> float:
        """The time of a segment with this share of the blocks."""
        return self.overhead + share * max(0.0, self.at(self.blocks, tokens) - self.overhead)

    def at(self, times: dict[int, float], tokens: int) -> float:
        """The time for this many tokens, interpolated between the measured numbers."""
        if tokens in times:
            return times[tokens]
        low = max(n for n in times if n < tokens)
        high = min((n for n in times if n > tokens), default=low)
        if high == low:
            return times[low] * tokens / low
        share = (tokens - low) / (high - low)
        return times[low] + share * (times[high] - times[low])

    @property
    def plain(self) -> float:
        """The time of one token without drafts."""
        return self.blocks[1] + self.head[1]


@dataclass
class TimeSpent:
    """Seconds by the clock and of the processor, added up over `with` blocks."""

    seconds: float = 0.0
    processor_seconds: float = 0.0

    def __enter__(self) -> None:
        """Start."""
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        """Stop, and add the time since the start."""
        self.seconds += time.perf_counter() - self._started[0]
        self.processor_seconds += time.process_time() - self._started[1]

    def cost(self, lm: LM) -> float:
        """The time to compare: the processor's where it does the work, else the clock's."""
        return self.processor_seconds if lm.device == "cpu" else self.seconds


def processor_clock(lm: LM) -> Callable[[], float]:
    """The clock of measurements: on a CPU the processor time, which other programs don't change."""
    return time.process_time if lm.device == "cpu" else time.perf_counter


@torch.inference_mode()
def measure_step_times(
    lm: LM, counts: Sequence[int] = (1, 2, 3, 5, 9), tries: int = 2
) -> StepTimes:
    """Times of this model on this machine: all in turn, each the best of a few tries."""
    context = torch.full((1, 32), lm.pad_id, device=lm.device)
    hidden = torch.zeros(max(counts), lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    head = {n: partial(_logits, lm, hidden[:n]) for n in counts}
    with segmented(lm, [0]) as model:
        [overhead] = fastest_of_each([partial(_run_and_drop, model, context[:, :1])], lm, tries)
    with segmented(lm, []) as model:
        model.run(0, context)
        blocks = [partial(_run_and_drop, model, context[:, :n]) for n in counts]
        times = fastest_of_each([*blocks, *head.values()], lm, tries)
    return StepTimes(
        dict(zip(counts, times[: len(counts)], strict=True)),
        dict(zip(counts, times[len(counts) :], strict=True)),
        overhead,
    )


@torch.inference_mode()
def draft_seconds(lm: LM, drafter: Drafter) -> float:
    """The time of a drafted token without its blocks: the map, and the head over few tokens."""
    state = torch.zeros(lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    return fastest_of_each([lambda: drafter.probs(lm, drafter.final_state(state, state), 1.0)], lm)[
        0
    ]


def _run_and_drop(model: SegmentedModel, tokens: Tensor) -> None:
    model.run(0, tokens)
    model.drop_last(0, tokens.shape[1])


def _logits(lm: LM, hidden: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(hidden))


def fastest_of_each(works: Sequence[Callable[[], object]], lm: LM, tries: int = 3) -> list[float]:
    """Seconds of each one's fastest try, after one to warm up; a try of each in turn."""
    clock, best = processor_clock(lm), [float("inf")] * len(works)
    for attempt in range(tries + 1):
        for i, work in enumerate(works):
            start = clock()
            work()
            if attempt:
                best[i] = min(best[i], clock() - start)
    return best
