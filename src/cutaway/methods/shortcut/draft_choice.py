"""Which draft pays, told by a short measurement before the real work.

Acceptance comes from texts the model wrote itself: one pass over each says, for every kind of
draft and every layer, which tokens would have been drafted right. Time comes from running the
model on one and on several tokens. Both together give the expected time per token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import torch
from torch import Tensor

from cutaway.methods.shortcut.decode import Drafter
from cutaway.methods.shortcut.draft_maps import AHEAD, load_draft_map
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.step_timing import StepTimes, draft_seconds, measure_step_times
from cutaway.models.lm import LM
from cutaway.models.read import collect_states

DRAFT_LENGTHS = (1, 2, 3, 4, 6, 8)
CONFIDENCE_FLOORS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# A gain below this is within the noise of the measurement.
MIN_SPEEDUP = 1.02
# Tokens to judge by: with fewer, the luckiest of many settings would win.
MIN_TOKENS = 512

T = TypeVar("T")


@dataclass(frozen=True)
class DraftSetting:
    """A kind of draft, its layer, length and stop, and how much faster than plain it should be."""

    kind: str
    layer: int
    length: int
    floor: float
    expected: float


@dataclass(frozen=True)
class Continuation:
    """A text that the model wrote: the prompt with its continuation."""

    row: list[int]
    written: int
    """How many of the last tokens are the model's."""


@dataclass(frozen=True)
class DraftReplay:
    """For each token of a text: would a draft be right, and how sure is it; by depth of draft."""

    right: list[list[bool]]
    sure: list[list[float]]

    def at(self, table: list[list[T]], depth: int, token: int) -> T:
        """What stands there; a draft that does not look back is the same at every depth."""
        return table[min(depth, len(table) - 1)][token]


def make_drafter(
    lm: LM,
    maps: ShortcutMaps,
    kind: str,
    layer: int,
    length: int = 1,
    floor: float = 0.0,
    prompt: Sequence[int] = (),
) -> Drafter:
    """A drafter from a layer, over the words that are frequent or in the prompt."""
    weight, bias = lm.output_embedding
    known = torch.tensor(sorted(set(prompt)), dtype=torch.long)
    words = torch.unique(torch.cat([maps.words(lm.vocab), known])).to(weight.device)
    back = kind == AHEAD
    return Drafter(
        jump=load_draft_map(maps, layer) if back else maps.jump(layer, lm.layers, kind),
        words=words,
        weight=weight.detach()[words].T.contiguous(),
        bias=None if bias is None else bias.detach()[words],
        length=length,
        floor=floor,
        back=back,
    )


def choose_draft(
    lm: LM,
    maps: ShortcutMaps,
    texts: Iterable[Continuation],
    drafts: Sequence[tuple[str, int]],
    lengths: Sequence[int] = DRAFT_LENGTHS,
) -> DraftSetting:
    """The setting with the least expected time per token, from texts the model wrote.

    `drafts` are the kinds and layers to choose from.
    """
    costs, seen = (
        measure_step_times(lm),
        continuation_states(lm, texts, {layer for _, layer in drafts}),
    )
    found = []
    for kind, layer in drafts:
        drafter = make_drafter(lm, maps, kind, layer)
        small, share = draft_seconds(lm, drafter), layer / lm.layers
        views = [replay_drafts(lm, drafter, layer, max(lengths), *text) for text in seen]
        for length, floor in product(lengths, CONFIDENCE_FLOORS):
            took = sum(
                simulated_seconds(costs, small, share, view, length, floor) for view in views
            )
            tokens = sum(len(view.right[0]) for view in views)
            found.append(DraftSetting(kind, layer, length, floor, costs.plain * tokens / took))
    return max(found, key=lambda setting: setting.expected)


@torch.inference_mode()
def continuation_states(
    lm: LM, texts: Iterable[Continuation], layers: Iterable[int]
) -> list[tuple[dict[int, Tensor], Tensor, int]]:
    """The states of the texts at these layers and the last, their tokens, where the model begins.

    Only as many texts as it takes to see enough tokens.
    """
    seen, tokens = [], 0
    for text in texts:
        ids = torch.tensor([text.row], device=lm.device)
        found = collect_states(
            lm, ids, torch.ones_like(ids, dtype=torch.bool), {*layers, lm.layers}
        )
        kept = {layer: value[0] for layer, value in found.layers.items()}
        seen.append((kept, ids[0], len(text.row) - text.written))
        tokens += text.written
        if tokens >= MIN_TOKENS:
            break
    return seen


@torch.inference_mode()
def replay_drafts(
    lm: LM,
    drafter: Drafter,
    layer: int,
    depth: int,
    seen: dict[int, Tensor],
    ids: Tensor,
    start: int,
) -> DraftReplay:
    """What a drafter would have said about each token the model wrote.

    A draft of depth 2 stands on a draft of depth 1: where that one was right, it sees the same
    tokens but has only foreseen the last layer's state.
    """
    before = torch.cat([torch.zeros_like(seen[lm.layers][:1]), seen[lm.layers][:-1]])
    view = DraftReplay([], [])
    for _ in range(depth if drafter.back else 1):
        ahead = drafter.foresee(before, seen[layer])
        best = drafter.probs(lm, ahead[start - 1 : -1], 1.0).max(dim=-1)
        view.right.append((drafter.words[best.indices] == ids[start:]).tolist())
        view.sure.append(best.values.tolist())
        before = torch.cat([before[:1], ahead[:-1]])
    return view


def simulated_seconds(
    costs: StepTimes, small: float, share: float, view: DraftReplay, length: int, floor: float
) -> float:
    """Seconds to write a recorded text with this setting; `small` is a draft without blocks."""
    at, seconds, end = 0, 0.0, len(view.right[0])
    while at < end:
        drafted = kept = 0
        for depth in range(min(length, end - at)):
            seconds += small
            if view.at(view.sure, depth, at + depth) < floor:
                break
            drafted += 1
            # What follows a wrong draft is unknown: it is taken to be as sure as what was written.
            if kept == depth and view.at(view.right, depth, at + depth):
                kept += 1
        seconds += (drafted + 1) * costs.stretch(share, 1)
        seconds += costs.stretch(1 - share, drafted + 1) + costs.at(costs.head, drafted + 1)
        at += kept + 1
    return seconds
