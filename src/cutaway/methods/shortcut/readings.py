"""Every layer read through every map, held against the full model, in one pass over states."""

from collections.abc import Sequence

from torch import Tensor

from cutaway.console import Console
from cutaway.methods.shortcut.fit import logits_fn
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.lens import (
    LayerPredictions,
    LogitsFn,
    concat_predictions,
    final_distribution,
    layer_predictions,
)
from cutaway.methods.shortcut.memory import MAX_LOGITS
from cutaway.methods.shortcut.sample import StateSample, TextRows

PredictionsByLayer = dict[tuple[str, int], LayerPredictions]


def predict_all_layers(
    sample: StateSample, rows: TextRows, maps: ShortcutMaps, kinds: Sequence[str], console: Console
) -> PredictionsByLayer:
    """{(kind, layer): reading} over all examples of these texts, layers 0..L."""
    lm = sample.lm
    jumps = {
        (kind, layer): maps.jump(layer, lm.layers, kind)
        for kind in kinds
        for layer in range(lm.layers)
    }
    head = logits_fn(lm)
    found: dict[tuple[str, int], list[LayerPredictions]] = {}
    size = max(1, MAX_LOGITS // lm.vocab)
    with console.progress("reading layers", len(rows)) as advance:
        for part, states in sample.states(rows, range(lm.layers + 1), at_once=size):
            chunk = _predict_chunk(states, sample.answers(part), jumps, head, kinds)
            for key, reading in chunk.items():
                found.setdefault(key, []).append(reading)
            advance(len(part))
    return {key: concat_predictions(pieces) for key, pieces in found.items()}


def _predict_chunk(
    states: dict[int, Tensor],
    coming: Tensor,
    jumps: dict[tuple[str, int], Shortcut],
    head: LogitsFn,
    kinds: Sequence[str],
) -> PredictionsByLayer:
    last = max(states)
    logits = head(states[last])
    full = final_distribution(logits)
    own = layer_predictions(logits, full, coming)
    found = {(kind, last): own for kind in kinds}
    for (kind, layer), jump in jumps.items():
        found[kind, layer] = layer_predictions(head(jump(states[layer])), full, coming)
    return found
