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


@torch.inference_mode()
def measure_step_times(lm: LM, counts: Sequence[int] = (1, 2, 3, 4, 5, 7, 9)) -> StepTimes:
    """Times of this model on this machine, each the best of a few tries."""
    context = torch.full((1, 32), lm.pad_id, device=lm.device)
    with segmented(lm, [0]) as model:
        overhead = fastest_of(partial(_run_and_drop, model, context[:, :1]))
    with segmented(lm, []) as model:
        model.run(0, context)
        blocks = {n: fastest_of(partial(_run_and_drop, model, context[:, :n])) for n in counts}
    hidden = torch.zeros(max(counts), lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    head = {n: fastest_of(partial(_logits, lm, hidden[:n])) for n in counts}
    return StepTimes(blocks, head, overhead)


@torch.inference_mode()
def draft_seconds(lm: LM, drafter: Drafter) -> float:
    """The time of a drafted token without its blocks: the map, and the head over few tokens."""
    state = torch.zeros(lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    return fastest_of(lambda: drafter.probs(lm, drafter.final_state(state, state), 1.0))


def _run_and_drop(model: SegmentedModel, tokens: Tensor) -> None:
    model.run(0, tokens)
    model.drop_last(0, tokens.shape[1])


def _logits(lm: LM, hidden: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(hidden))


def fastest_of(work: Callable[[], object], tries: int = 5) -> float:
    """Seconds of the fastest try, after one to warm up."""
    work()
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
