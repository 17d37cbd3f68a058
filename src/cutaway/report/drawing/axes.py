"""Axes below the columns: few ticks with honest labels, chosen so that none touch."""

import math
from collections.abc import Callable, Sequence

from cutaway.report.drawing import marks
from cutaway.report.drawing.geometry import Place, Scale, round_ticks, spread
from cutaway.report.drawing.text_width import width

TICK_SIZE, _TICK_LENGTH, _BASELINE = 11, 4, 18
_ROOT_TICKS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


def axis(
    place: Place,
    scale: Scale,
    ticks: Sequence[float],
    label: Callable[[float], str],
    zero: float | None = None,
    *,
    free: float | None = None,
) -> str:
    """A line at `zero` and tick labels below; of labels that touch, the earlier one is kept.

    No label reaches over the place `free`.
    """
    places, widths, spots = [], [], []
    for value in ticks:
        wide = width(label(value), TICK_SIZE)
        if free is not None and abs(scale.x(value) - free) < wide / 2 + 4:
            continue
        middle = min(max(scale.x(value), wide / 2), place.right - wide / 2)
        places.append((middle, label(value)))
        widths.append(wide)
        spots.append(scale.x(value))
    foot = place.rows.total
    kept = spread(places, widths)
    lines = [
        marks.stroke([(x, foot), (x, foot + _TICK_LENGTH)])
        for x, spot in zip(spots, places, strict=True)
        if spot in kept
    ]
    if zero is not None:
        lines.append(marks.stroke([(scale.x(zero), 0), (scale.x(zero), foot)]))
    texts = [marks.text("tck", x, foot + _BASELINE, t, anchor="middle") for x, t in kept]
    return marks.path("axis", lines) + "".join(texts)


def share_axis(place: Place, scale: Scale, *, line: bool = True) -> str:
    """An axis of percentages from 0; on a square-root axis the labels are the shares themselves."""
    if scale.root:
        inner = [t for t in _ROOT_TICKS if t < scale.high * 0.95]
        ticks = [scale.high, *sorted(inner, key=lambda t: abs(t - scale.high / 9))]
        ticks += [0.0] if line else []
    else:
        ticks = sorted(round_ticks(0, scale.high, 3), key=lambda t: (0 < t < scale.high, -t))
    free = None if line else scale.left
    return axis(place, scale, ticks, percent, 0.0 if line else None, free=free)


def rounded_up(value: float) -> float:
    """A round number that is at least the value: 1, 1.5, 2, 3 ... times a power of ten."""
    if not value > 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next((s * size for s in steps if s * size >= value * (1 - 1e-9)), 10 * size)


def percent(value: float) -> str:
    """`0`, `0.5 %`, `30 %`."""
    return f"{100 * value:.3g} %" if value else "0"


def decimal(value: float) -> str:
    """Two decimals, without needless zeros: `0.53`, `1`."""
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
