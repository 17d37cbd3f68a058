"""The sentences of the drawing, made by rule from its numbers.

known from   the first layer whose score is inside the interval of the chosen layer
said from    the first layer at which half of the tokens are the full model's
jump         a step between neighbouring layers that is an outlier among the steps of its track

A sentence says nothing about the last layer, which agrees with itself, about the step from the
embeddings, which every model has, or about blocks that were not trained.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from cutaway.report import formats
from cutaway.report.drawing.values import Drawing, Observation, Series, Track

HALF = 0.5
MIN_TRACKS = 3
"""Tracks that must jump at the same place to make an observation."""
OUTLIER = 4.0
"""Distance of a jump from the median step, in scaled median absolute deviations."""
MAD_SCALE = 1.4826
"""The median absolute deviation times this estimates the standard deviation of a normal sample."""
MIN_STEP = 0.1
"""The smallest jump, as a share of the range of its track."""
MIN_STEPS = 6
"""Fewer steps don't show what is usual."""
PART_NAMES = {"mlp": "MLP", "attention": "attention", "norm": "norms", "other": "other parts"}


def with_sentences(drawing: Drawing) -> Drawing:
    """The drawing with the sentences of its tracks, its title, observations and verdict."""
    tracks = tuple(
        replace(track, sentence=track_sentence(track)) if track.measured else track
        for track in drawing.tracks
    )
    drawing = replace(drawing, tracks=tracks)
    found = tuple(observations(drawing))
    title = title_sentence(drawing)
    said = [f"{_lead(one)}: {one.sentence}" for one in tracks if one.measured and one.sentence]
    verdict = (*filter(None, [title]), *said, *(one.sentence for one in found))
    return replace(drawing, title=title, observations=found, verdict=verdict)


def _lead(track: Track) -> str:
    return f"{track.question} ({track.name})" if track.kind == "property" else track.question


def track_sentence(track: Track) -> str:
    """What the track shows, in at most three short lines; empty if it was not measured."""
    return SENTENCES[track.kind](track) if track.measured else ""


def known_from(track: Track) -> int | None:
    """The first layer whose score is inside the interval of the best one; None if no layer is shown
    to be above the baseline."""
    best = best_layer(track)
    if best is None:
        return None
    low = _at(track, "low", best)
    if low is None or (track.baseline is not None and low <= track.baseline):
        return None
    return next(i for i, value in enumerate(track.main) if value is not None and value >= low)


def best_layer(track: Track) -> int | None:
    """The layer that the validation rows chose, or the one with the best score."""
    if track.chosen is not None:
        return track.chosen
    known = [(value, -i) for i, value in enumerate(track.main) if value is not None]
    return -max(known)[1] if known else None


def said_from(values: Series) -> int | None:
    """The first layer from which at least half of the tokens agree, at every later layer too."""
    layers = [i for i, value in enumerate(values) if value is not None]
    late = [i for i in layers if values[i] < HALF]  # type: ignore[operator]
    start = (late[-1] + 1) if late else 0
    return next((i for i in layers if i >= start), None)


def _at(track: Track, name: str, layer: int) -> float | None:
    values = track.series.get(name, ())
    return values[layer] if layer < len(values) else None


def _property(track: Track) -> str:
    best, first = best_layer(track), known_from(track)
    if best is None:
        return ""
    score = f"{formats.number(track.main[best])} at layer {best}"
    if track.baseline is None:
        return f"Best on validation rows: {score}."
    without = f"without the model {formats.number(track.baseline)}"
    if first is None:
        return f"Not shown to be known: {score}, {without}."
    start = f"Known from layer {first} on" if first < best else f"Known at layer {first}"
    return f"{start}: {score}, {without}."


def _agreement(track: Track) -> str:
    last = len(track.main) - 1
    through, plain = said_from(track.main), said_from(track.series.get("lens", ()))
    text = f"Half of the final words are there {_from(through, last)} through a linear map"
    return f"{text}; by the logit lens {_from(plain, last)}." if plain is not None else f"{text}."


def _from(layer: int | None, last: int) -> str:
    if layer is None or layer >= last:
        return "only in the last layer"
    return f"from layer {layer} on"


def _linearity(track: Track) -> str:
    last = len(track.main) - 1
    half, text = track.main[last // 2] if last > 1 else None, ""
    if half is not None:
        text = f"One matrix explains {half:.0%} of the last layer from layer {last // 2}. "
    # The step from the embeddings is left out: every model has it.
    steps = [(v, i) for i, v in enumerate(track.series.get("next", ())) if v is not None and i > 0]
    if len(steps) > 1:
        value, layer = min(steps)
        text += f"The least linear step: {layer} to {layer + 1} (r2 {formats.number(value)})."
    return text.strip()


def _skill(track: Track) -> str:
    totals = [
        (sum(_at(track, part, i) or 0.0 for part in PART_NAMES), i) for i in range(len(track.main))
    ]
    share, layer = max(totals, key=lambda pair: pair[0])
    part = max(PART_NAMES, key=lambda name: _at(track, name, layer) or 0.0)
    where = "the embeddings hold" if layer == 0 else f"block {layer} holds"
    trained = sum(track.trained[1:]) if track.trained else 0
    only = 0 < trained < len(track.main) - 1
    lead = f"Of the {trained} trained blocks, {where}" if only else where.capitalize()
    return f"{lead} {share:.0%} of its weights, mostly {PART_NAMES[part]}."


def _movement(track: Track) -> str:
    known = [(value, i) for i, value in enumerate(track.main) if value is not None]
    top, layer = max(known)
    if top == 0:
        return "No weight has moved."
    where = "the embeddings" if layer == 0 else f"block {layer}"
    still = sum(value == 0 for value, _ in known)
    rest = f" {still} of {len(known)} did not move." if still else ""
    return f"Weights moved most in {where}: by {top:.1%} of their norm.{rest}"


def _fisher(track: Track) -> str:
    known = [(value, i) for i, value in enumerate(track.main) if value is not None]
    share, layer = max(known)
    where = "the embeddings" if layer == 0 else f"block {layer}"
    blocks = sorted(((v, i) for v, i in known if i > 0), reverse=True)
    text = f"Plain text depends most on {where} ({share:.0%} of the Fisher information)"
    if layer == 0 and blocks:
        text += f", then on block {blocks[0][1]} ({blocks[0][0]:.0%})"
    return f"{text}."


SENTENCES = {
    "property": _property, "agreement": _agreement, "linearity": _linearity, "skill": _skill,
    "movement": _movement, "fisher": _fisher,
}  # fmt: skip


def title_sentence(drawing: Drawing) -> str:
    """When the model knows, and when it says it; empty if neither was measured."""
    last = drawing.blocks
    known = {t.name: known_from(t) for t in drawing.tracks if t.kind == "property" and t.measured}
    layers = [layer for layer in known.values() if layer is not None]
    spoken = [t for t in drawing.tracks if t.kind == "agreement" and t.measured]
    said = said_from(spoken[0].main) if spoken else None
    parts = []
    if layers:
        count = len(layers)
        what = {1: "known", 2: "both known"}.get(count, f"all {count} properties known")
        if count < len(known):
            what = f"{count} of {len(known)} properties known"
        parts.append(f"{what} by layer {max(layers)} of {last}")
    if spoken:
        ready = said is not None and said < last
        parts.append(f"half of the words ready at layer {said}" if ready else "words ready last")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def observations(drawing: Drawing) -> list[Observation]:
    """Places where at least three tracks jump between the same two or three layers."""
    jumps = {track.name: jump_layers(track) for track in drawing.tracks if track.measured}
    places = [
        layer
        for layer in range(2, drawing.blocks)
        if len(_jumping(jumps, (layer, layer + 1))) >= MIN_TRACKS
    ]
    groups: list[list[int]] = []
    for layer in places:
        if groups and layer - groups[-1][-1] <= 1:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return [_observation(drawing, jumps, group) for group in groups]


def _jumping(jumps: dict[str, set[int]], layers: Iterable[int]) -> list[str]:
    return [name for name, found in jumps.items() if found & set(layers)]


def _observation(drawing: Drawing, jumps: dict[str, set[int]], group: list[int]) -> Observation:
    window = [*group, group[-1] + 1]
    names = _jumping(jumps, window)
    hit = sorted(layer for name in names for layer in jumps[name] & set(window))
    first, last = hit[0], hit[-1]
    by_name = {track.name: track for track in drawing.tracks}
    steps = [_step_text(by_name[name], jumps[name] & set(window)) for name in names]
    where = f"At layer {first}" if first == last else f"At layers {first} to {last}"
    return Observation(first, last, f"{where}, {len(names)} tracks jump: {'; '.join(steps)}.")


def _step_text(track: Track, layers: set[int]) -> str:
    layer = max(layers, key=lambda i: abs((track.main[i] or 0.0) - (track.main[i - 1] or 0.0)))
    before, after = (formats.number(track.main[i]) for i in (layer - 1, layer))
    return f"{track.name} {before} to {after}"


def jump_layers(track: Track) -> set[int]:
    """The layers whose value differs from the layer before by an outlying step.

    The step from the embeddings and the one to the last layer are left out; so are values that
    other settings than the model decide, such as which blocks were trained.
    """
    if track.trained is not None and not all(track.trained[1:]):
        return set()
    values = track.main
    if track.kind == "linearity":
        # Below 0 a map is worse than the mean, and how much worse is of no interest.
        values = tuple(None if value is None else max(value, 0.0) for value in values)
    inside = range(2, len(values) - 1)
    steps = {i: values[i] - values[i - 1] for i in inside if _both(values, i)}  # type: ignore[operator]
    known = [value for value in values[1:-1] if value is not None]
    if len(steps) < MIN_STEPS or not known or max(known) == min(known):
        return set()
    middle = median(steps.values())
    spread = MAD_SCALE * median(abs(step - middle) for step in steps.values())
    least = max(OUTLIER * spread, MIN_STEP * (max(known) - min(known)))
    return {i for i, step in steps.items() if abs(step - middle) > least}


def _both(values: Sequence[float | None], layer: int) -> bool:
    return all(
        value is not None and math.isfinite(value) for value in (values[layer - 1], values[layer])
    )
