"""The drawing as columns: the stack, then a column per track, or strips for many scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutaway.report.drawing import marks
from cutaway.report.drawing.columns import SCORES, Body, draw_track
from cutaway.report.drawing.geometry import (
    GAP,
    PICTURE_WIDTH,
    STACK_WIDTH,
    STRIP,
    Place,
    Rows,
    column_width,
)
from cutaway.report.drawing.layer_values import layer_summary, layer_text
from cutaway.report.drawing.stack import draw_stack, shown_sentence, stack_header
from cutaway.report.drawing.strips import LABEL_HEIGHT, draw_strips, strips_sentence
from cutaway.report.drawing.text_width import clean, wrap
from cutaway.report.drawing.values import Drawing, Track, TrackKind

MOST_BARS = 4
"""With more scores than this, each becomes a strip."""
LABEL_SIZE = 12
_HUES: dict[TrackKind, str] = {
    "agreement": "violet",
    "linearity": "slate",
    "skill": "orange",
    "movement": "vermilion",
    "fisher": "pink",
}
_SCORE_HUES = ("blue", "green", "sky", "olive")
_COMMAND_SIZE = 10.5


@dataclass(frozen=True)
class Column:
    """A column of the picture: what is above its rows, and the marks in them."""

    name: str
    hue: str
    width: float
    method: str
    question: str
    sentence: str
    label: tuple[str, ...]
    body: Body
    texts: tuple[str, ...]
    """Per layer, what the pointer shows."""
    label_class: str = "lbl"
    grid: bool = True
    """Whether there is a line at layers with a number."""
    room_above: float = 0.0
    """Room for texts of the body above the rows."""


def columns_of(drawing: Drawing, space: float = PICTURE_WIDTH) -> list[Column]:
    """The stack and all tracks, from left to right, as wide as the space if that is possible."""
    rows = Rows(drawing.blocks + 1)
    scores = [track for track in drawing.tracks if track.kind == SCORES]
    strips = scores if len(scores) > MOST_BARS else []
    single = [track for track in drawing.tracks if track not in strips]
    strips_width = len(strips) * STRIP + GAP if strips else 0
    place = Place(rows, column_width(len(single), space - strips_width))
    columns, hues = [_stack_column(drawing, rows)], hues_of(drawing)
    for track in drawing.tracks:
        if track in single:
            columns.append(_track_column(track, place, hues[track.name]))
        elif track is strips[0]:
            columns.append(_strips_column(strips, Place(rows, max(strips_width, 150))))
    return columns


def hues_of(drawing: Drawing) -> dict[str, str]:
    """The colour of each track, by its name; scores take turns."""
    scores = [track.name for track in drawing.tracks if track.kind == SCORES]
    turns = {name: _SCORE_HUES[n % len(_SCORE_HUES)] for n, name in enumerate(scores)}
    return {t.name: _HUES.get(t.kind) or turns[t.name] for t in drawing.tracks}


def _stack_column(drawing: Drawing, rows: Rows) -> Column:
    question, sentence = stack_header(drawing)
    return Column(
        name="the model",
        hue="navy",
        label_class="snt",
        grid=False,
        width=STACK_WIDTH,
        method="the model",
        question=question,
        sentence=sentence,
        label=tuple(shown_sentence(drawing, STACK_WIDTH - GAP, LABEL_SIZE)),
        body=Body(draw_stack(drawing, Place(rows, STACK_WIDTH))),
        texts=tuple(layer_summary(drawing, n) for n in range(rows.count)),
    )


def _track_column(track: Track, place: Place, hue: str) -> Column:
    measured = track.measured
    label = wrap(clean(track.label), place.right, LABEL_SIZE, 3, bold=True) if measured else []
    return Column(
        name=track.name,
        hue=hue if measured else "grey",
        width=place.width,
        method=track.method,
        question=track.question,
        sentence=track.sentence or track.label * (not measured),
        label=tuple(label),
        body=draw_track(track, place) if measured else Body(_outline(track, place)),
        texts=tuple(f"{track.name}: {layer_text(track, n)}" for n in place.layers),
    )


def _strips_column(tracks: Sequence[Track], place: Place) -> Column:
    measured = [track for track in tracks if track.measured]
    return Column(
        name=tracks[0].name,
        hue="blue" if measured else "grey",
        width=place.width,
        method=tracks[0].method,
        question=tracks[0].question,
        sentence=strips_sentence(tracks),
        label=(),
        body=draw_strips(tracks, place),
        texts=tuple(
            "\n".join(f"{track.name}: {layer_text(track, n)}" for track in measured)
            for n in place.layers
        ),
        room_above=LABEL_HEIGHT,
    )


def _outline(track: Track, place: Place) -> str:
    """A dotted outline with the command that fills it."""
    frame = marks.path("dotted", [marks.box(0.5, place.right - 0.5, 0.5, place.rows.total - 0.5)])
    most = max(1, int((place.rows.total - 60) / 15))
    space = place.right - 16
    lines = wrap(clean(track.command), space, _COMMAND_SIZE, min(9, most), monospaced=True)
    middle = place.right / 2
    y = place.rows.total / 2 - 7.5 * len(lines)
    words = marks.text("nym", middle, y, "not measured yet", anchor="middle")
    return frame + words + "".join(_command_lines(lines, y + 22))


def _command_lines(lines: Sequence[str], y: float) -> Iterator[str]:
    for at, line in enumerate(lines):
        yield marks.text("cmd", 8, y + 15 * at, line, size=_COMMAND_SIZE)
