"""The numbers of a layer as text: for what the pointer shows, the table and the terminal."""

import math

from cutaway.report import formats
from cutaway.report.drawing.text_width import shown_word
from cutaway.report.drawing.values import SERIES, Drawing, Track

SERIES_NAMES = {
    "control": "control task", "map": "fitted map", "lens": "logit lens",
    "last": "r² to the last layer", "next": "r² to the next layer", "mlp": "MLP",
    "attention": "attention", "norm": "norm", "other": "other", "change": "relative change",
    "text": "plain text", "skill": "skill", "value": "value",
}  # fmt: skip
SHARES = frozenset({"agreement", "skill", "movement", "fisher"})
"""Kinds of tracks whose values are percentages."""
UNMEASURED, UNTRAINED = "not measured", "not trained"


def value_at(track: Track, name: str, layer: int) -> float | None:
    """A value of a layer; None where nothing was measured or the value is not finite."""
    values = track.series.get(name, ())
    value = values[layer] if layer < len(values) else None
    return None if value is None or not math.isfinite(value) else value


def finite(track: Track, *names: str) -> list[float]:
    """All values of these series that were measured."""
    found = (
        value_at(track, name, n) for name in names for n in range(len(track.series.get(name, ())))
    )
    return [value for value in found if value is not None]


def is_trained(track: Track, layer: int) -> bool:
    """Whether the layer's weights were trained, as far as the track is about that."""
    return track.trained is None or layer >= len(track.trained) or track.trained[layer]


def is_undefined(track: Track, layer: int) -> bool:
    """Whether there is nothing to measure: no map leads on from the last layer."""
    return track.kind == "linearity" and layer == max(map(len, track.series.values())) - 1


def number(track: Track, value: float) -> str:
    """A value of the track with three digits; shares as percentages."""
    return f"{100 * value:.3g} %" if track.kind in SHARES else formats.number(value)


def layer_text(track: Track, layer: int) -> str:
    """All values of the track at a layer: `0.981 [0.970, 0.990], control task 0.71`."""
    parts = []
    main = SERIES[track.kind][0]
    for name in SERIES[track.kind]:
        value = value_at(track, name, layer)
        if value is None or name in ("low", "high"):
            continue
        label = "" if name == main == "value" else f"{SERIES_NAMES[name]} "
        parts.append(f"{label}{number(track, value)}{_interval(track, layer) * (name == main)}")
    return ", ".join(parts) or _reason(track, layer)


def _reason(track: Track, layer: int) -> str:
    """Why a layer has no value."""
    if track.measured and is_undefined(track, layer):
        return "none from the last layer"
    return UNMEASURED if is_trained(track, layer) else UNTRAINED


def _interval(track: Track, layer: int) -> str:
    low, high = value_at(track, "low", layer), value_at(track, "high", layer)
    if low is None or high is None:
        return ""
    return f" [{number(track, low)}, {number(track, high)}]"


def layer_name(layer: int) -> str:
    """`layer 3`; layer 0 is the embeddings."""
    return f"layer {layer}" if layer else "layer 0 (embeddings)"


def word_text(drawing: Drawing, layer: int) -> str:
    """`"Paris" 0.91`, the word that a layer predicts with its probability."""
    word = drawing.words[layer] if layer < len(drawing.words) else None
    return "" if word is None else f"{shown_word(word.text)} {formats.number(word.probability)}"


def layer_summary(drawing: Drawing, layer: int) -> str:
    """Everything known about a layer, one line each for the word and the measured tracks."""
    word = word_text(drawing, layer)
    tracks = [f"{t.name}: {layer_text(t, layer)}" for t in drawing.tracks if t.measured]
    name = layer_name(layer)
    return "\n".join([name[0].upper() + name[1:], *[f"word: {word}"] * bool(word), *tracks])
