"""Many scores side by side: a heat strip each, 20 pixels wide, instead of bars."""

from collections.abc import Sequence

from cutaway.report.drawing import marks
from cutaway.report.drawing.columns import Body, Key
from cutaway.report.drawing.geometry import STRIP, Place
from cutaway.report.drawing.layer_values import finite, value_at
from cutaway.report.drawing.marks import Paths
from cutaway.report.drawing.palette import LEVELS
from cutaway.report.drawing.text_width import fit
from cutaway.report.drawing.values import Track

LABEL_HEIGHT = 84
"""Room for the names of the strips, which are written upwards."""
_NAME_SIZE = 11.5
BELOW = "below faint"


def strips_sentence(tracks: Sequence[Track]) -> str:
    """What the colours mean."""
    return f"{len(tracks)} tasks: each from its text baseline to the best possible score."


def draw_strips(tracks: Sequence[Track], place: Place) -> Body:
    """A cell per task and layer, darker with the score; what is below the baseline is grey."""
    paths = Paths(*(f"h{n}" for n in range(LEVELS)), BELOW, "none", "dotted")
    names = ""
    rings = below = False
    for at, track in enumerate(tracks):
        x = at * STRIP
        names += _name(track.name, x)
        if not track.measured:
            paths.add("dotted", marks.box(x + 1, x + STRIP - 2, 0.5, place.rows.total - 0.5))
        for n in place.layers:
            value = value_at(track, "value", n)
            y0, y1 = place.rows.edges(n, 0.9)
            if value is not None:
                name = _level(track, value)
                below = below or name == BELOW
                paths.add(name, marks.box(x, x + STRIP - 2, y0, y1))
            elif track.measured:
                rings = True
                radius = min(3.0, place.rows.height * 0.25)
                paths.add("none", marks.ring(x + STRIP / 2 - 1, (y0 + y1) / 2, radius))
    keys = [Key("ramp", "", "baseline to best")]
    keys += [Key("box", BELOW, "below")] if below else []
    keys += [Key("ring", "none", "not measured")] if rings else []
    return Body(names + paths.svg(), tuple(keys))


def _level(track: Track, value: float) -> str:
    """The class of a cell: its score as a share of the way from the baseline to the top."""
    base = track.baseline or 0.0
    top = max(finite(track, "value")) if track.top is None else track.top
    if value < base:
        return BELOW
    share = (value - base) / (top - base) if top > base else 1.0
    return f"h{min(LEVELS - 1, int(share * LEVELS))}"


def _name(name: str, x: float) -> str:
    turned = f' transform="rotate(-90 {marks.num(x + 13)} -8)"'
    return marks.text("lbl", x + 13, -8, fit(name, LABEL_HEIGHT - 8, _NAME_SIZE), more=turned)
