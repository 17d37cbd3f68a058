"""Seconds of a model on this machine: stretches of blocks, heads, drafts."""

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
    """Seconds: all blocks, and the head, for n tokens at once."""

    blocks: dict[int, float]
    head: dict[int, float]
    call: float
    """What a stretch costs besides its blocks: embedding, masks, positions."""

    def stretch(self, share: float, tokens: int) -> float:
        """The time of a stretch with this share of the blocks."""
        return self.call + share * max(0.0, self.at(self.blocks, tokens) - self.call)

    def at(self, table: dict[int, float], tokens: int) -> float:
        """The time for so many tokens; between two measured counts, on the line between them."""
        known = sorted(table)
        if tokens in table:
            return table[tokens]
        low = max(n for n in known if n < tokens)
        high = min((n for n in known if n > tokens), default=low)
        if high == low:
            return table[low] * tokens / low
        share = (tokens - low) / (high - low)
        return table[low] + share * (table[high] - table[low])

    @property
    def plain(self) -> float:
        """The time of a token that nobody drafted."""
        return self.blocks[1] + self.head[1]


@torch.inference_mode()
def measure_step_times(lm: LM, counts: Sequence[int] = (1, 2, 3, 4, 5, 7, 9)) -> StepTimes:
    """Times of this model on this machine, the best of a few tries each."""
    context = torch.full((1, 32), lm.pad_id, device=lm.device)
    with segmented(lm, [0]) as cut:
        call = fastest_of(partial(_run_and_crop, cut, 0, context[:, :1]))
    with segmented(lm, []) as cut:
        cut.run(0, context)
        blocks = {n: fastest_of(partial(_run_and_crop, cut, 0, context[:, :n])) for n in counts}
    hidden = torch.zeros(max(counts), lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    heads = {n: fastest_of(partial(_logits, lm, hidden[:n])) for n in counts}
    return StepTimes(blocks, heads, call)


@torch.inference_mode()
def draft_seconds(lm: LM, drafter: Drafter) -> float:
    """What a drafted token costs besides its blocks: the jump, and the head over few words."""
    state = torch.zeros(lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    return fastest_of(lambda: drafter.probs(lm, drafter.foresee(state, state), 1.0))


def _run_and_crop(cut: SegmentedModel, number: int, tokens: Tensor) -> None:
    cut.run(number, tokens)
    cut.forget(number, tokens.shape[1])


def _logits(lm: LM, hidden: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(hidden))


def fastest_of(work: Callable[[], object], tries: int = 5) -> float:
    """Seconds of the quickest try, after one to warm up."""
    work()
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
