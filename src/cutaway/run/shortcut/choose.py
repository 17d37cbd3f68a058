"""Which draft layer and draft length pay, told by a short measurement before the real work.

Acceptance comes from a text the model wrote itself: one pass over it says, for every layer,
which tokens a draft from there would have got right. Time comes from running stretches of the
model on one and on several tokens. Both together give the expected time per token.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cutaway.models.lm import LM
from cutaway.models.read import states
from cutaway.run.shortcut.decode import Drafter
from cutaway.run.shortcut.maps import Maps
from cutaway.run.shortcut.segments import Segments, segments

LENGTHS = (1, 2, 3, 4, 6, 8)
FLOORS = (0.0, 0.3, 0.5, 0.7)
# A gain below this is within the noise of the measurement.
WORTH = 1.02


@dataclass(frozen=True)
class Setting:
    """A draft layer, draft length and stop, and how much faster than plain it should be."""

    layer: int
    length: int
    floor: float
    expected: float


@dataclass(frozen=True)
class Costs:
    """Seconds: all blocks and the head for n tokens at once, and the draft's small head."""

    blocks: dict[int, float]
    head: dict[int, float]
    small: float
    call: float
    """What a stretch costs besides its blocks: embedding, masks, positions."""

    def stretch(self, share: float, tokens: int) -> float:
        """The time of a stretch with this share of the blocks."""
        return self.call + share * (self.at(self.blocks, tokens) - self.call)

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


def drafter_for(
    lm: LM, maps: Maps, kind: str, layer: int, length: int, floor: float, prompt: Sequence[int] = ()
) -> Drafter:
    """A drafter from a layer, over the words that are frequent or in the prompt."""
    weight, bias = lm.output_embedding
    known = torch.tensor(sorted(set(prompt)), dtype=torch.long)
    words = torch.unique(torch.cat([maps.words(lm.vocab), known])).to(weight.device)
    small = weight.detach()[words].contiguous()
    jump = maps.jump(layer, lm.layers, kind)
    return Drafter(
        jump, words, small, None if bias is None else bias.detach()[words], length, floor
    )


def choose(
    lm: LM,
    maps: Maps,
    kind: str,
    row: list[int],
    written: int,
    layers: Sequence[int],
    lengths: Sequence[int] = LENGTHS,
) -> Setting:
    """The setting with the least expected time per token, from a text the model wrote.

    `row` is the prompt with its continuation, `written` how many tokens of it are the model's.
    """
    right, sure = hindsight(lm, maps, kind, row, written, layers)
    costs = measure_costs(lm, drafter_for(lm, maps, kind, layers[0], 1, 0.0))
    plain = costs.blocks[1] + costs.head[1]
    found = [
        Setting(
            layer,
            length,
            floor,
            plain / _per_token(lm, costs, right[layer], sure[layer], layer, length, floor),
        )
        for layer in layers
        for length in lengths
        for floor in FLOORS
    ]
    return max(found, key=lambda setting: setting.expected)


@torch.inference_mode()
def hindsight(
    lm: LM, maps: Maps, kind: str, row: list[int], written: int, layers: Sequence[int]
) -> tuple[dict[int, list[bool]], dict[int, list[float]]]:
    """By layer, for each token the model wrote: would the draft be right, and how sure is it."""
    ids = torch.tensor([row], device=lm.device)
    seen = states(lm, ids, torch.ones_like(ids, dtype=torch.bool), layers).layers
    right, sure = {}, {}
    start = len(row) - written - 1
    for layer in layers:
        drafter = drafter_for(lm, maps, kind, layer, 1, 0.0)
        probs = drafter.probs(lm, seen[layer][0, start:-1], 1.0)
        best = probs.max(dim=-1)
        guess = drafter.words[best.indices]
        right[layer] = (guess == ids[0, start + 1 :]).tolist()
        sure[layer] = best.values.tolist()
    return right, sure


def _per_token(
    lm: LM,
    costs: Costs,
    right: list[bool],
    sure: list[float],
    layer: int,
    length: int,
    floor: float,
) -> float:
    """Seconds per token if the recorded text were written with this setting."""
    share, at, seconds = layer / lm.layers, 0, 0.0
    while at < len(right):
        drafted = 0
        while drafted < length and at + drafted < len(right) and sure[at + drafted] >= floor:
            drafted += 1
        kept = 0
        while kept < drafted and right[at + kept]:
            kept += 1
        seconds += (drafted + 1) * costs.stretch(share, 1) + min(drafted + 1, length) * costs.small
        seconds += costs.stretch(1 - share, drafted + 1) + costs.at(costs.head, drafted + 1)
        at += kept + 1
    return seconds / len(right)


@torch.inference_mode()
def measure_costs(lm: LM, drafter: Drafter, counts: Sequence[int] = (1, 2, 3, 5, 9)) -> Costs:
    """Times of this model on this machine, the best of a few tries each."""
    context = torch.full((1, 32), lm.pad_id, device=lm.device)
    with segments(lm, []) as cut:
        cut.run(0, context)
        blocks = {n: best_of(partial(_blocks, cut, context[:, :n])) for n in counts}
    with segments(lm, [1]) as cut:
        cut.run(0, context)
        short = best_of(partial(_blocks, cut, context[:, :1]))
    hidden = torch.zeros(max(counts), lm.width, device=lm.device, dtype=getattr(torch, lm.dtype))
    heads = {n: best_of(partial(_head, lm, hidden[:n])) for n in counts}
    small = best_of(lambda: drafter.probs(lm, hidden[0], 1.0))
    # A stretch of one block and one of all: the rest of the line is what a call costs by itself.
    call = max(0.0, (lm.layers * short - blocks[1]) / max(lm.layers - 1, 1))
    return Costs(blocks, heads, small, call)


def _blocks(cut: Segments, tokens: Tensor) -> None:
    cut.run(0, tokens)
    cut.forget(0, tokens.shape[1])


def _head(lm: LM, hidden: Tensor) -> Tensor:
    return lm.unembed(lm.final_norm(hidden))


def best_of(work: Callable[[], object], tries: int = 5) -> float:
    """Seconds of the quickest try, after one to warm up."""
    work()
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def plain_text(
    lm: LM, prompt: Tensor, limit: int, stops: frozenset[int], **sampling: object
) -> tuple[list[int], float]:
    """What transformers' own `generate` writes, and the seconds it takes."""
    start = time.perf_counter()
    with torch.inference_mode():
        out = lm.module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=limit,
            pad_token_id=lm.pad_id,
            eos_token_id=sorted(stops) or None,
            **({"do_sample": False} | sampling),
        )
    return out[0, prompt.shape[1] :].tolist(), time.perf_counter() - start
