"""The marks of each kind of track, in a table: kind -> function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cutaway.report.drawing import marks
from cutaway.report.drawing.axes import axis, decimal, percent, rounded_up, share_axis
from cutaway.report.drawing.geometry import Place, Scale
from cutaway.report.drawing.layer_values import (
    SERIES_NAMES,
    UNTRAINED,
    finite,
    is_trained,
    is_undefined,
    value_at,
)
from cutaway.report.drawing.marks import Paths
from cutaway.report.drawing.values import SERIES, Track, TrackKind

SCORES: TrackKind = "property"
BELOW_SHARE = 0.25
"""How far an axis goes on below its zero at most, as a share of its range above it."""


@dataclass(frozen=True)
class Key:
    """An entry of a column's legend: `shape` is box, bar, fade, ramp, tick, line, dots or ring."""

    shape: str
    name: str
    """The class of its colour."""
    label: str


@dataclass(frozen=True)
class Body:
    """The marks of a track, from the top of the uppermost row, and what they mean."""

    svg: str
    keys: tuple[Key, ...] = ()
    zero: float = 0.0
    """Where bars begin."""


def draw_track(track: Track, place: Place) -> Body:
    """The marks of a measured track: bars or lines, layers without values, the axis."""
    body = DRAWERS[track.kind](track, place)
    untrained, rings = _untrained(track, place), _unmeasured(track, place, body.zero)
    key = (Key("ring", "none", "not measured"),) if rings else ()
    return Body(untrained + body.svg + rings, (*body.keys, *key))


def _probe(track: Track, place: Place) -> Body:
    """Fading bars from the baseline, and the control task as a tick."""
    scale, base = _score_scale(track, place)
    paths = Paths("hue pale", "below", "hue mid", "hue", "tick")
    for n in place.layers:
        value, control = value_at(track, "value", n), value_at(track, "control", n)
        y = place.rows.middle(n)
        if value is not None:
            _fading_bar(paths, scale, base, value, _bounds(track, n, value), place.rows.edges(n))
            if value < scale.low:
                paths.add("below", _arrow(0, y))
        if control is not None:
            outside = control < scale.low
            paths.add("tick", _chevron(y) if outside else _upright(scale.x(control), place, n))
    has = {name for name in SERIES[track.kind] if finite(track, name)}
    keys = [Key("fade", "hue", "95 %")] if {"low", "high"} <= has else []
    keys += [Key("tick", "tick", "control")] if "control" in has else []
    below = any(value < base for value in finite(track, "value"))
    keys += [Key("box", "below", "below")] if below else []
    top = scale.high
    ticks = [base, top, (base + top) / 2, *([scale.low] if scale.low < base else [])]
    lines = axis(place, scale, ticks, decimal, base)
    return Body(lines + paths.svg(), tuple(keys), scale.x(base))


def _score_scale(track: Track, place: Place) -> tuple[Scale, float]:
    """The axis of a score and its baseline: up to the best possible value.

    It begins at the baseline, or further to the left for values and intervals below it. Control
    tasks that are worse than that are marked at the edge.
    """
    values = finite(track, "value", "low", "high")
    base = min([0.0, *values]) if track.baseline is None else track.baseline
    top = max([base, *values]) if track.top is None else track.top
    top = top if top > base else max([base + 1e-9, *values])
    low = max(min([base, *values]), base - BELOW_SHARE * (top - base))
    return Scale(low, top, 0, place.right), base


def _bounds(track: Track, layer: int, value: float) -> tuple[float, float]:
    low, high = value_at(track, "low", layer), value_at(track, "high", layer)
    return (value if low is None else low), (value if high is None else high)


def _fading_bar(
    paths: Paths,
    scale: Scale,
    base: float,
    value: float,
    bounds: tuple[float, float],
    edges: tuple[float, float],
) -> None:
    """Solid from the baseline to the nearer bound, paler to the value, palest to the other one."""
    low, high = bounds
    if value >= base:
        near, far, solid, mid = max(base, low), high, "hue", "hue mid"
    else:
        near, far, solid, mid = min(base, high), low, "below", "below"
    ends = [scale.x(end) for end in (base, near, value, far)]
    for name, x0, x1 in zip((solid, mid, "hue pale"), ends[:3], ends[1:], strict=True):
        if abs(x1 - x0) >= 0.05:
            paths.add(name, marks.box(x0, x1, *edges))
    across = min(base, low) if value >= base else max(base, high)
    if across != base:
        paths.add("hue pale", marks.box(scale.x(base), scale.x(across), *edges))
    if value == base:
        paths.add("hue", marks.box(scale.x(base), scale.x(base) + 1, *edges))


def _agreement(track: Track, place: Place) -> Body:
    scale = Scale(0, 1, 0, place.right)
    paths = Paths("hue soft-bar", "hue pale", "lens")
    for n in place.layers:
        value, lens = value_at(track, "map", n), value_at(track, "lens", n)
        if value is not None:
            paths.add("hue soft-bar", marks.box(0, scale.x(value), *place.rows.edges(n)))
            high = _bounds(track, n, value)[1]
            if scale.x(high) - scale.x(value) >= 0.3:
                paths.add(
                    "hue pale", marks.box(scale.x(value), scale.x(high), *place.rows.edges(n))
                )
        if lens is not None:
            paths.add("lens", marks.box(0, max(0.7, scale.x(lens)), *place.rows.edges(n, 0.28)))
    keys = [Key("box", "hue soft-bar", SERIES_NAMES["map"])] if finite(track, "map") else []
    keys += [Key("bar", "lens", SERIES_NAMES["lens"])] if finite(track, "lens") else []
    return Body(axis(place, scale, [0, 1, 0.5], percent) + paths.svg(), tuple(keys))


def _linearity(track: Track, place: Place) -> Body:
    values = finite(track, "last", "next")
    low = max(-BELOW_SHARE, min([0.0, *values]))
    scale = Scale(low, 1, 4 if low < 0 else 0, place.right - 4)
    paths = Paths("hue area", "ray next", "ray", "hue")
    keys = []
    for name, line, shape in (("last", "ray", "line"), ("next", "ray next", "dots")):
        for run in _runs(track, name, place):
            spots = [(scale.x(v), place.rows.middle(n)) for n, v in run]
            paths.add(line, marks.stroke(spots))
            if name == "last":
                paths.add("hue area", _area(spots, scale.x(max(low, 0.0)), place.rows.height / 2))
            radius = min(3.0, place.rows.height * 0.25) * (1 if name == "last" else 0.55)
            for (x, y), (_, value) in zip(spots, run, strict=True):
                paths.add("hue", marks.ring(x, y, radius) if value >= low else _arrow(0, y))
        if finite(track, name):
            keys.append(Key(shape, line, SERIES_NAMES[name].removeprefix("r² ")))
    ticks = [0, 1, 0.5, *([low] if low < 0 else [])]
    return Body(axis(place, scale, ticks, decimal, 0) + paths.svg(), tuple(keys))


def _runs(track: Track, name: str, place: Place) -> list[list[tuple[int, float]]]:
    """Neighbouring layers with values: a line has a gap where nothing was measured."""
    runs: list[list[tuple[int, float]]] = [[]]
    for n in place.layers:
        value = value_at(track, name, n)
        if value is None:
            runs.append([])
        else:
            runs[-1].append((n, value))
    return [run for run in runs if run]


def _area(spots: list[marks.Point], x: float, half: float) -> str:
    first, last = spots[0], spots[-1]
    ends = [(first[0], first[1] + half), *spots, (last[0], last[1] - half)]
    return marks.polygon([(x, first[1] + half), *ends, (x, last[1] - half)])


def _stacked(track: Track, place: Place) -> Body:
    parts = SERIES[track.kind]
    sums = [sum(max(0.0, value_at(track, part, n) or 0.0) for part in parts) for n in place.layers]
    scale = Scale(0, rounded_up(max(sums)), 0, place.right)
    paths = Paths(*parts)
    for n in place.layers:
        start = 0.0
        for part in parts:
            share = value_at(track, part, n)
            if share:
                end = start + max(0.0, share)
                paths.add(part, marks.box(scale.x(start), scale.x(end), *place.rows.edges(n)))
                start = end
        if start == 0 and any(value_at(track, part, n) is not None for part in parts):
            paths.add(parts[0], marks.box(0, 0.8, *place.rows.edges(n)))
    keys = tuple(Key("box", p, SERIES_NAMES[p]) for p in parts if any(finite(track, p)))
    return Body(share_axis(place, scale) + paths.svg(), keys)


def _movement(track: Track, place: Place) -> Body:
    scale = Scale(0, rounded_up(max(finite(track, "change"))), 0, place.right)
    paths = Paths("hue")
    for n in place.layers:
        value = value_at(track, "change", n)
        if value is not None:
            paths.add("hue", marks.box(0, max(0.8, scale.x(value)), *place.rows.edges(n)))
    return Body(share_axis(place, scale) + paths.svg())


def _fisher(track: Track, place: Place) -> Body:
    """A butterfly, plain text to the left and the skill to the right; or one side alone."""
    sides = _sides(track)
    most = rounded_up(max(finite(track, *sides)))
    middle = place.right / 2 if len(sides) == 2 else 0.0
    paths, svg = Paths("text", "hue", "split"), ""
    for name in sides:
        left = name == "text" and len(sides) == 2
        scale = Scale(0, most, middle, 0 if left else place.right, root=True)
        colour = "text" if left else "hue"
        for n in place.layers:
            value = value_at(track, name, n)
            if value is not None:
                x = scale.x(value)
                end = min(x, middle - 0.8) if left else max(x, middle + 0.8)
                paths.add(colour, marks.box(middle, end, *place.rows.edges(n)))
        svg += share_axis(place, scale, line=len(sides) == 1)
    if len(sides) == 2:
        paths.add("split", marks.stroke([(middle, 0), (middle, place.rows.total)]))
    colours = dict(zip(sides, ("text", "hue") if len(sides) == 2 else ("hue",), strict=True))
    keys = tuple(Key("box", colours[name], SERIES_NAMES[name]) for name in sides)
    return Body(svg + paths.svg(), keys, middle)


def _sides(track: Track) -> list[str]:
    return [name for name in SERIES[track.kind] if finite(track, name)]


DRAWERS: dict[TrackKind, Callable[[Track, Place], Body]] = {
    SCORES: _probe,
    "agreement": _agreement,
    "linearity": _linearity,
    "skill": _stacked,
    "movement": _movement,
    "fisher": _fisher,
}


def _untrained(track: Track, place: Place) -> str:
    """Layers that were not trained in grey, with words where they fit."""
    grey, words = [], ""
    for run in _neighbours(n for n in place.layers if not is_trained(track, n)):
        y0, y1 = place.rows.edges(run[-1], 1)[0], place.rows.edges(run[0], 1)[1]
        grey.append(marks.box(0, place.right, y0, y1))
        if y1 - y0 >= 15:
            y = (y0 + y1) / 2 + 4
            words += marks.text("unt", place.right / 2, y, UNTRAINED, anchor="middle")
    return marks.path("ghost", grey) + words


def _unmeasured(track: Track, place: Place, zero: float) -> str:
    """Layers without a value as open circles."""
    shown = [s for s in SERIES[track.kind] if s not in ("low", "high", "control")]
    radius = min(3.0, place.rows.height * 0.25)
    return marks.path(
        "none",
        (
            marks.ring(zero + 6, place.rows.middle(n), radius)
            for n in place.layers
            if all(value_at(track, s, n) is None for s in shown)
            and is_trained(track, n)
            and not is_undefined(track, n)
        ),
    )


def _neighbours(layers: Iterable[int]) -> list[list[int]]:
    """Runs of consecutive layers."""
    runs: list[list[int]] = []
    for n in layers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def _upright(x: float, place: Place, layer: int) -> str:
    y0, y1 = place.rows.edges(layer, 0.8)
    return marks.stroke([(x, y0), (x, y1)])


def _chevron(y: float) -> str:
    """A sign at the left edge: the tick is further to the left."""
    return marks.stroke([(3.5, y - 3), (0.5, y), (3.5, y + 3)])


def _arrow(x: float, y: float) -> str:
    """A mark at the left edge: the value is further to the left."""
    return marks.polygon([(x - 1, y), (x + 5, y - 3), (x + 5, y + 3)])
