"""The drawing as one self-contained SVG file: real text, no scripts, light and dark."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from cutaway.report.colours import ColourMode
from cutaway.report.drawing import marks
from cutaway.report.drawing.columns import SCORES
from cutaway.report.drawing.geometry import GAP, Rows
from cutaway.report.drawing.header import Bands, bands_of, draw_header, spans
from cutaway.report.drawing.layer_values import layer_summary
from cutaway.report.drawing.layout import Column, columns_of
from cutaway.report.drawing.palette import colour_rules
from cutaway.report.drawing.text_width import clean, width, wrap
from cutaway.report.drawing.values import Drawing

MARGIN = 24
_AXIS_HEIGHT = 30
TITLE_SIZE, _FINDING_SIZE, NOTE_SIZE = 22, 18, 12
_NOTE_LINE = 18
HOW_TO_READ_SCORES = (
    "Scores start at the best baseline without the model and fade over their 95 % interval; "
    "the tick is the control task."
)


def svg_text(drawing: Drawing, *, mode: ColourMode | None = None) -> str:
    """The picture as text; its size in pixels is in `width` and `height` of the root.

    Without a mode it is dark where the reader prefers that, and light in print.
    """
    columns, rows = columns_of(drawing), Rows(drawing.blocks + 1)
    bands = bands_of(columns)
    inner = max(sum(column.width for column in columns) - GAP, 560)
    heading, top = _heading(drawing, inner)
    body = _columns(drawing, columns, bands, top)
    foot = top + bands.top + rows.total + _AXIS_HEIGHT
    notes, height = _notes(drawing, inner, foot)
    wide, high = inner + 2 * MARGIN, height + MARGIN - 6
    hits = _whole_rows(drawing, rows, inner, top + bands.top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cutaway-drawing" role="img" '
        f'width="{marks.num(wide)}" height="{marks.num(high)}" '
        f'viewBox="0 0 {marks.num(wide)} {marks.num(high)}">'
        f"{marks.title(question(drawing))}<desc>{escape(description(drawing))}</desc>"
        f"<style>{file_style(mode)}</style>"
        f'<rect class="paper" width="100%" height="100%"/>'
        f'<g transform="translate({MARGIN},0)">{heading}{body}{notes}{hits}</g></svg>\n'
    )


def question(drawing: Drawing) -> str:
    """The title of the picture."""
    return f"What is inside {clean(drawing.model)}?"


def description(drawing: Drawing) -> str:
    """The picture in words: what was found, all sentences."""
    sentences = [drawing.title, *drawing.verdict]
    if not drawing.verdict:
        sentences += [track.sentence for track in drawing.tracks if track.measured]
    return " ".join(dict.fromkeys(clean(one) for one in sentences if one)) or question(drawing)


def file_style(mode: ColourMode | None = None) -> str:
    """The style sheet of a file: of one mode, or dark where the reader prefers it."""
    if mode is not None:
        return shapes_style() + colour_rules(mode)
    dark = f"@media screen and (prefers-color-scheme:dark){{{colour_rules('dark')}}}"
    return shapes_style() + colour_rules("light") + dark


def shapes_style() -> str:
    """Fonts, strokes and opacities."""
    text = files("cutaway.report.drawing").joinpath("shapes.css").read_text(encoding="utf-8")
    return "".join(line.strip() for line in text.splitlines())


def draw_column(
    drawing: Drawing,
    column: Column,
    bands: Bands,
    span: float,
    *,
    narrow: bool = False,
    link: str = "",
) -> str:
    """A column from its own left upper corner: header, observations, grid and marks."""
    rows = Rows(drawing.blocks + 1)
    header = draw_header(column, bands, span, narrow=narrow)
    if link:
        header = f'<a href="{escape(link)}">{header}</a>'
    return (
        f'{header}<g transform="translate(0,{marks.num(bands.top)})">'
        f"{_background(drawing, column, rows)}{column.body.svg}</g>"
    )


def column_height(drawing: Drawing, bands: Bands) -> float:
    """The height of a column with its axis."""
    return bands.top + Rows(drawing.blocks + 1).total + _AXIS_HEIGHT


def _background(drawing: Drawing, column: Column, rows: Rows) -> str:
    """Observations as bands, and a line at each layer with a number."""
    bands = [
        marks.box(0, column.width, rows.edges(one.last, 1)[0], rows.edges(one.first, 1)[1])
        for one in drawing.observations
    ]
    lines = [
        marks.stroke([(0, rows.middle(n)), (column.width, rows.middle(n))])
        for n in rows.numbered()
        if rows.step > 1 and column.grid
    ]
    return marks.path("band", bands) + marks.path("grid", lines)


def _columns(drawing: Drawing, columns: Sequence[Column], bands: Bands, top: float) -> str:
    parts, x = [], 0.0
    for column, span in zip(columns, spans(columns), strict=True):
        parts.append(
            f'<g class="{column.hue}" transform="translate({marks.num(x)},{marks.num(top)})">'
            f"{draw_column(drawing, column, bands, span)}</g>"
        )
        x += column.width
    return "".join(parts)


def _heading(drawing: Drawing, space: float) -> tuple[str, float]:
    """The title, with the finding after it or below it, and where the columns begin."""
    name = wrap(question(drawing), space, TITLE_SIZE, 2, bold=True)
    lines = [
        marks.text("ttl", 0, 42 + 28 * n, line, size=TITLE_SIZE) for n, line in enumerate(name)
    ]
    y = 42 + 28 * (len(name) - 1)
    start = width(name[-1], TITLE_SIZE, bold=True) + 10
    finding = clean(drawing.title)
    if width(finding, _FINDING_SIZE) <= space - start:
        parts, x = [finding] if finding else [], start
    else:
        parts, x, y = wrap(finding, space, _FINDING_SIZE, 3), 0.0, y + 28
    lines += [marks.text("fnd", x, y + 24 * n, p, size=_FINDING_SIZE) for n, p in enumerate(parts)]
    return "".join(lines), y + 24 * max(0, len(parts) - 1) + 30


def _notes(drawing: Drawing, space: float, top: float) -> tuple[str, float]:
    """Observations and the footer below the columns, and where they end."""
    y, parts = top + 16, []
    for one in drawing.observations:
        lines = wrap(clean(one.sentence), space - 22, NOTE_SIZE, 4)
        parts.append(marks.path("band", [marks.box(0, 14, y - 10, y + 2)]))
        for n, line in enumerate(lines):
            parts.append(marks.text("obs", 22, y + _NOTE_LINE * n, line))
        y += _NOTE_LINE * len(lines) + 2
    for line in wrap(footer(drawing), space, NOTE_SIZE, 3):
        parts.append(marks.text("say", 0, y, line))
        y += _NOTE_LINE
    return "".join(parts), y


def footer(drawing: Drawing) -> str:
    """How to read the picture, and what it is made from."""
    scores = [track for track in drawing.tracks if track.kind == SCORES and track.measured]
    parts = ["Layer n is the state after block n; layer 0 is the embeddings."]
    if scores:
        parts.append(HOW_TO_READ_SCORES)
    return clean(" ".join([*parts, drawing.footer]))


def _whole_rows(drawing: Drawing, rows: Rows, wide: float, top: float) -> str:
    """An invisible bar over each row: the pointer on it shows all numbers of the layer."""
    texts = [layer_summary(drawing, n) for n in range(rows.count)]
    return f'<g transform="translate(0,{marks.num(top)})">{hit_rows(texts, rows, wide)}</g>'


def hit_rows(texts: Sequence[str], rows: Rows, wide: float) -> str:
    """A bar per layer with its text as the title."""
    return "".join(
        f'<rect class="hit" data-layer="{n}" x="0" y="{marks.num(rows.edges(n, 1)[0])}" '
        f'width="{marks.num(wide)}" height="{marks.num(rows.height)}">{marks.title(text)}</rect>'
        for n, text in enumerate(texts)
    )
