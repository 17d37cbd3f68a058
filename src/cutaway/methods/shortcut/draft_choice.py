"""The choice of a draft setting by a short measurement before generation.

Acceptance is measured on texts that the model generated: one pass over each shows, for every kind
of draft and every layer, which tokens would have been drafted correctly. Time is measured by
running the model on one and on several tokens. Together they give the expected time per token.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from cutaway.methods.shortcut.decode import Drafter
from cutaway.methods.shortcut.draft_maps import AHEAD, load_draft_map
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.step_timing import StepTimes, draft_seconds
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM

DRAFT_LENGTHS = (1, 2, 3, 4, 6, 8)
CONFIDENCE_FLOORS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# A smaller gain is within the noise of the measurement, the more so the fewer tokens it has: some
# of the many settings are lucky.
MIN_SPEEDUP, LUCK = 1.02, 0.6
# Tokens to measure on: with fewer, a lucky setting among many would be chosen.
MIN_TOKENS = 512


@dataclass(frozen=True)
class DraftSetting:
    """A kind of draft, its layer, length and minimum confidence, and the expected speed-up."""

    kind: str
    layer: int
    length: int
    floor: float
    expected: float | None = None
    """None when the setting was given, not measured."""


def pays(setting: DraftSetting, tokens: int) -> bool:
    """Whether the gain expected from a measurement on this many tokens is more than luck."""
    return (setting.expected or 0.0) >= MIN_SPEEDUP + LUCK / math.sqrt(max(tokens, 1))


@dataclass(frozen=True)
class Continuation:
    """A prompt with the model's continuation."""

    row: list[int]
    generated: int
    """How many of the last tokens are the model's."""


@dataclass(frozen=True)
class ContinuationStates:
    """States of a continuation at some layers, its tokens, and where the generated ones begin."""

    layers: dict[int, Tensor]
    ids: Tensor
    start: int


@dataclass(frozen=True)
class DraftReplay:
    """Whether each generated token would be drafted correctly, and how confidently, by depth.

    A draft that does not use the previous token's state is the same at every depth.
    """

    correct: list[list[bool]]
    confidence: list[list[float]]

    def at(self, depth: int, token: int) -> tuple[bool, float]:
        """Correctness and confidence of a token drafted at this depth."""
        row = min(depth, len(self.correct) - 1)
        return self.correct[row][token], self.confidence[row][token]


def make_drafter(
    lm: LM,
    maps: ShortcutMaps,
    kind: str,
    layer: int,
    length: int = 1,
    floor: float = 0.0,
    prompt: Sequence[int] = (),
) -> Drafter:
    """A drafter from a layer, over the tokens that are frequent or in the prompt."""
    weight, bias = lm.output_embedding
    known = torch.tensor(sorted(set(prompt)), dtype=torch.long)
    tokens = torch.unique(torch.cat([maps.draft_tokens(lm.vocab), known])).to(weight.device)
    return Drafter(
        jump=load_draft_map(maps, layer) if kind == AHEAD else maps.jump(layer, lm.layers, kind),
        vocabulary=tokens,
        weight=weight.detach()[tokens].T.contiguous(),
        bias=None if bias is None else bias.detach()[tokens],
        length=length,
        floor=floor,
        uses_previous=kind == AHEAD,
    )


def choose_draft(
    lm: LM,
    maps: ShortcutMaps,
    texts: Iterable[Continuation],
    drafts: Sequence[tuple[str, int]],
    times: StepTimes,
    lengths: Sequence[int] = DRAFT_LENGTHS,
) -> DraftSetting:
    """The setting with the least expected time per token on the model's own texts.

    `drafts` are the kinds and layers to choose from.
    """
    states = continuation_states(lm, texts, {layer for _, layer in drafts})
    settings = []
    for kind, layer in drafts:
        drafter = make_drafter(lm, maps, kind, layer)
        seconds, share = draft_seconds(lm, drafter), layer / lm.layers
        replays = [replay_drafts(lm, drafter, layer, max(lengths), text) for text in states]
        plain = times.plain * sum(len(replay.correct[0]) for replay in replays)
        for length, floor in product(lengths, CONFIDENCE_FLOORS):
            took = sum(
                simulated_seconds(times, seconds, share, replay, length, floor)
                for replay in replays
            )
            settings.append(DraftSetting(kind, layer, length, floor, plain / took))
    return max(settings, key=lambda setting: setting.expected or 0.0)


@torch.inference_mode()
def continuation_states(
    lm: LM, texts: Iterable[Continuation], layers: Iterable[int]
) -> list[ContinuationStates]:
    """The states of the texts at these layers and the last, for as many texts as are needed."""
    collected, tokens = [], 0
    for text in texts:
        ids = torch.tensor([text.row], device=lm.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        states = collect_states(lm, ids, mask, {*layers, lm.layers}).layers
        by_layer = {layer: value[0] for layer, value in states.items()}
        collected.append(ContinuationStates(by_layer, ids[0], len(text.row) - text.generated))
        tokens += text.generated
        if tokens >= MIN_TOKENS:
            break
    return collected


@torch.inference_mode()
def replay_drafts(
    lm: LM, drafter: Drafter, layer: int, depth: int, text: ContinuationStates
) -> DraftReplay:
    """What a drafter would have predicted for each generated token.

    A draft of depth 2 follows a draft of depth 1: where that one was correct, it sees the same
    tokens but only a predicted state of the last layer.
    """
    final = text.layers[lm.layers]
    previous = torch.cat([torch.zeros_like(final[:1]), final[:-1]])
    replay = DraftReplay([], [])
    for _ in range(depth if drafter.uses_previous else 1):
        predicted = drafter.final_state(previous, text.layers[layer])
        best = drafter.probs(lm, predicted[text.start - 1 : -1], 1.0).max(dim=-1)
        replay.correct.append((drafter.vocabulary[best.indices] == text.ids[text.start :]).tolist())
        replay.confidence.append(best.values.tolist())
        previous = torch.cat([previous[:1], predicted[:-1]])
    return replay


def simulated_seconds(
    times: StepTimes, draft: float, share: float, replay: DraftReplay, length: int, floor: float
) -> float:
    """Seconds to generate a recorded text with this setting; `draft` is a draft without blocks."""
    position, seconds, end = 0, 0.0, len(replay.correct[0])
    while position < end:
        drafted = accepted = 0
        for depth in range(min(length, end - position)):
            seconds += draft
            correct, confidence = replay.at(depth, position + depth)
            if confidence < floor:
                break
            drafted += 1
            # After a wrong draft the tokens are unknown: the recorded confidence is assumed.
            if accepted == depth and correct:
                accepted += 1
        seconds += (drafted + 1) * times.segment(share, 1)
        seconds += times.segment(1 - share, drafted + 1) + times.at(times.head, drafted + 1)
        position += accepted + 1
    return seconds
