"""Every layer's predictions at every token, and where an early exit would stop."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.methods.nextword.output_head import token_text
from cutaway.methods.shortcut.lens import LensGrid
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.exit_simulation import LayerConfidences, exit_layers
from cutaway.methods.shortcut.maths.lens import (
    LayerPredictions,
    final_distribution,
    layer_predictions,
)
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize_typed

MAX_GRID_TOKENS = 48
"""Maximum columns of the grid; more would not be readable."""
LAMBDAS = tuple(round(0.05 * step, 2) for step in range(21))
MAP_KINDS = ("id", "mat")


@dataclass(frozen=True, eq=False)
class SentenceLens:
    """The predictions for one sentence, per layer and kind of map."""

    lens: LensGrid
    readings: dict[str, list[LayerPredictions]]
    """kind -> a reading per layer 0..L."""
    vocab: int
    tokens: int
    """Number of tokens of the sentence; the grid shows the first of them, or the last of a
    conversation."""

    def plain_lens(self) -> dict[str, Any]:
        """The grid as JSON-ready values."""
        return {**asdict(self.lens), "total": self.tokens, "shown": len(self.lens.tokens)}

    def plain_exit(self) -> dict[str, Any]:
        """The confidence of layers 1..L, and the exit layer for each lambda."""
        return {
            "model": self.lens.model,
            "tokens": self.lens.tokens,
            "lambdas": LAMBDAS,
            "kinds": {kind: _exits(readings) for kind, readings in self.readings.items()},
        }


@torch.inference_mode()
def read_sentence(lm: LM, maps: ShortcutMaps | None, text: str, top: int) -> SentenceLens:
    """Every layer's most likely words at the first tokens of a text.

    A conversation is read whole, and the grid shows its last tokens, where the reply begins.
    """
    limit = lm.context if lm.chat else min(MAX_GRID_TOKENS, lm.context)
    got = tokenize_typed(lm, text, limit=limit)
    if lm.chat and got.truncated[0]:
        raise BadData(f"The conversation is longer than the context of {limit} tokens: shorten it.")
    if got.empty[0]:
        raise BadData(f"The text {text[:40]!r} has no tokens for {lm.name!r}: type some words.")
    ids = torch.tensor([got.rows[0]], device=lm.device)
    states = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    seen = {layer: state[:, -MAX_GRID_TOKENS:] for layer, state in states.items()}
    head, kinds = logits_fn(lm), _kinds(maps)
    logits = head(seen[lm.layers][0])
    full = final_distribution(logits)
    readings: dict[str, list[LayerPredictions]] = {kind: [] for kind in kinds}
    words: dict[str, Any] = {kind: [] for kind in kinds}
    probs: dict[str, Any] = {kind: [] for kind in kinds}
    for layer in range(lm.layers + 1):
        for kind in kinds:
            hidden = seen[layer][0]
            moved = hidden if maps is None else maps.jump(layer, lm.layers, kind)(hidden)
            logits = head(moved)
            readings[kind].append(layer_predictions(logits, full))
            chance, tokens = torch.softmax(logits, dim=-1).topk(min(top, lm.vocab), dim=-1)
            words[kind].append([[token_text(lm, t) for t in row] for row in tokens.tolist()])
            probs[kind].append(_rounded(chance))
    own = readings[kinds[0]][-1].guess
    agree = {kind: [(r.guess == own).tolist() for r in rs] for kind, rs in readings.items()}
    shown = tuple(token_text(lm, token) for token in got.rows[0][-MAX_GRID_TOKENS:])
    lens = LensGrid(lm.name, shown, tuple(range(lm.layers + 1)), kinds, words, probs, agree)
    return SentenceLens(lens, readings, lm.vocab, len(got.rows[0]) + int(got.truncated[0]))


def _kinds(maps: ShortcutMaps | None) -> tuple[str, ...]:
    return ("id",) if maps is None else tuple(kind for kind in MAP_KINDS if kind in maps.kinds)


def _exits(readings: list[LayerPredictions]) -> dict[str, Any]:
    """Gaps (layer, token), agreement with the last layer, and exit layers per lambda."""
    later = readings[1:]
    gaps = np.stack([np.asarray(reading.gap, dtype=np.float64) for reading in later])
    right = np.stack([(r.guess == readings[-1].guess).numpy() for r in later])
    count = gaps.shape[1]
    track = LayerConfidences(gaps, right, np.arange(count), float(count))
    stops = {f"{lam:.2f}": exit_layers(track, lam) for lam in LAMBDAS}
    return {
        "gap": np.round(gaps, 4).tolist(),
        "stops": {lam: found.tolist() for lam, found in stops.items()},
        "kept": {lam: right[found - 1, np.arange(count)].tolist() for lam, found in stops.items()},
    }


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in values.tolist()]
