"""What is above the rows of a column: method, question, sentence, label and legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from cutaway.report.drawing import marks
from cutaway.report.drawing.columns import Key
from cutaway.report.drawing.geometry import GAP
from cutaway.report.drawing.layout import LABEL_SIZE, Column
from cutaway.report.drawing.palette import LEVELS
from cutaway.report.drawing.text_width import clean, fit, width, wrap

QUESTION_SIZE, SENTENCE_SIZE, KEY_SIZE = 15, 12, 11
_QUESTION_LINE, _SENTENCE_LINE, _LABEL_LINE, _KEY_LINE = 18, 16, 15, 15
_METHOD_FOOT, _SWATCH = 19, 14


@dataclass(frozen=True)
class Bands:
    """The heights that all headers share, so that rows are aligned."""

    question: float
    sentence: float
    legend: float

    @property
    def top(self) -> float:
        """Where the rows begin."""
        return _METHOD_FOOT + self.question + self.sentence + 14 + self.legend + 8


def bands_of(columns: Sequence[Column]) -> Bands:
    """Heights with which every column's header fits."""
    return Bands(
        max(len(_question(column, column.width)) for column in columns) * _QUESTION_LINE + 7,
        max(len(_sentence(column)) for column in columns) * _SENTENCE_LINE,
        max(_legend_height(column) for column in columns),
    )


def spans(columns: Sequence[Column]) -> list[float]:
    """Per column the width of its question; 0 if it is that of the column before."""
    found: list[float] = []
    for at, column in enumerate(columns):
        if at and _heading(columns[at - 1]) == _heading(column):
            first = next(n for n in range(at, -1, -1) if found[n - 1] or n == 0) - 1
            found[first] += column.width
            found.append(0.0)
        else:
            found.append(column.width)
    return found


def _heading(column: Column) -> tuple[str, str, bool]:
    return column.method, column.question, column.hue == "grey"


def draw_header(column: Column, bands: Bands, span: float, *, narrow: bool = False) -> str:
    """The header; `narrow` adds what a small screen shows, where each column is alone."""
    wide = _heading_lines(column, span) if span else ""
    alone = _heading_lines(column, column.width)
    if narrow and wide != alone:
        wide = f'<g class="wide">{wide}</g><g class="narrow">{alone}</g>'
    y = _METHOD_FOOT + bands.question + _SENTENCE_LINE
    sentence = (
        marks.text("say", 0, y + _SENTENCE_LINE * n, line)
        for n, line in enumerate(_sentence(column))
    )
    top = bands.top - _legend_height(column) - 8
    return _rule(column, span) + wide + "".join(sentence) + _legend(column, top)


def _rule(column: Column, span: float) -> str:
    """The coloured line at the top; within a group it goes on to the next column."""
    left = 0 if span else -GAP
    return marks.path("hue", [marks.box(left, column.width - GAP, 0, 2.5)])


def _heading_lines(column: Column, space: float) -> str:
    lines = [marks.text("mth", 0, _METHOD_FOOT, clean(column.method).upper())]
    for n, line in enumerate(_question(column, space)):
        lines.append(marks.text("qst", 0, _METHOD_FOOT + _QUESTION_LINE * (n + 1) + 2, line))
    return "".join(lines)


def _question(column: Column, space: float) -> list[str]:
    return wrap(clean(column.question), space - 11, QUESTION_SIZE, 2, bold=True)


def _sentence(column: Column) -> list[str]:
    """The sentence, in more lines where the column is narrow."""
    space = column.width - GAP + 6
    return wrap(clean(column.sentence), space, SENTENCE_SIZE, 4 if space >= 140 else 6)


def _legend_height(column: Column) -> float:
    keys = len(_key_lines(column)) * _KEY_LINE
    return len(column.label) * _LABEL_LINE + keys + column.room_above


def _key_lines(column: Column) -> list[list[tuple[float, Key]]]:
    """The legend's entries with their places, in as many lines as they need."""
    lines: list[list[tuple[float, Key]]] = []
    x = space = column.width - GAP + 6
    for key in column.body.keys:
        wide = _swatch_width(key) + width(key.label, KEY_SIZE) + 9
        if not lines or x + wide - 9 > space:
            lines.append([])
            x = 0
        lines[-1].append((x, key))
        x += wide
    return lines


def _swatch_width(key: Key) -> float:
    return {"ramp": 6 * LEVELS + 5, "tick": 7, "ring": 11}.get(key.shape, _SWATCH + 1)


def _legend(column: Column, top: float) -> str:
    label = "".join(
        marks.text(column.label_class, 0, top + _LABEL_LINE * (n + 0.8), line, size=LABEL_SIZE)
        for n, line in enumerate(column.label)
    )
    y = top + len(column.label) * _LABEL_LINE
    keys = ""
    for n, line in enumerate(_key_lines(column)):
        for x, key in line:
            middle = y + _KEY_LINE * (n + 0.5)
            space = column.width - GAP + 8 - x - _swatch_width(key)
            words = fit(key.label, space, KEY_SIZE)
            keys += _swatch(key, x, middle)
            keys += marks.text("key", x + _swatch_width(key), middle + 4, words)
    return label + keys


def _swatch(key: Key, x: float, y: float) -> str:
    """A small sample of a mark."""
    if key.shape == "ramp":
        boxes = (
            (f"h{n}", marks.box(x + 6 * n, x + 6 * n + 6, y - 4, y + 4)) for n in range(LEVELS)
        )
        return "".join(marks.path(name, [shape]) for name, shape in boxes)
    if key.shape == "fade":
        steps = (("hue", 0, 4), ("hue mid", 4, 7), ("hue pale", 7, 11))
        return "".join(
            marks.path(name, [marks.box(x + a, x + b, y - 4, y + 4)]) for name, a, b in steps
        )
    shapes = {
        "box": marks.box(x, x + 10, y - 4, y + 4),
        "bar": marks.box(x, x + 10, y - 1.5, y + 1.5),
        "tick": marks.stroke([(x + 2, y - 5), (x + 2, y + 5)]),
        "line": marks.stroke([(x, y), (x + 11, y)]),
        "dots": marks.stroke([(x, y), (x + 11, y)]),
        "ring": marks.ring(x + 4, y, 3),
    }
    return marks.path(key.name, [shapes[key.shape]])
