"""The drawing as a web page, and as a part of another one."""

import base64
import gzip
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Literal

from cutaway.report.colours import ColourMode
from cutaway.report.drawing import marks
from cutaway.report.drawing.geometry import PICTURE_WIDTH, Rows
from cutaway.report.drawing.header import Bands, bands_of, spans
from cutaway.report.drawing.layer_values import number, value_at, word_text
from cutaway.report.drawing.layout import Column, columns_of
from cutaway.report.drawing.palette import colour_rules, colours
from cutaway.report.drawing.svg import (
    column_height,
    draw_column,
    footer,
    hit_rows,
    question,
    shapes_style,
    svg_text,
)
from cutaway.report.drawing.text_width import clean
from cutaway.report.drawing.values import SERIES, Drawing
from cutaway.report.formats import DASH
from cutaway.report.inline_scripts import content_security_policy

_PAGE_COLOURS = ("ink", "soft", "background", "line", "grid", "band", "ghost", "blue-text")
HOW_TO_READ = "Arrow keys up and down: the numbers of a layer. Left and right: the other tracks."


def html_text(drawing: Drawing) -> str:
    """One self-contained page that makes no requests."""
    script = page_script()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{content_security_policy(script)}">
<title>{escape(question(drawing))}</title>
<style>{page_style()}</style>
</head>
<body class="cd-page">
<main>
<div class="cd-bar cutaway-drawing"><button type="button" data-action="theme">Light / dark</button>
<button type="button" data-action="svg">Download SVG</button></div>
{html_fragment(drawing, style=False)}
</main>
<script>{script}</script>
</body>
</html>
"""


def html_fragment(
    drawing: Drawing,
    *,
    key: str = "drawing",
    heading: Literal["h1", "h2", "h3"] = "h1",
    links: Mapping[str, str] | None = None,
    width: float = PICTURE_WIDTH,
    style: bool = True,
) -> str:
    """The drawing as a part of a page; without the script everything can still be read.

    `key` starts all ids. `width` is the space for all columns. `links` are addresses by the name of
    a track; its header leads there. `style=False` if the page has `page_style` already. The page
    adds `page_script`.
    """
    columns = columns_of(drawing, width)
    bands = bands_of(columns)
    found = zip(columns, spans(columns), strict=True)
    drawn = "".join(_column(drawing, c, bands, span, (links or {})) for c, span in found)
    finding = f"<span>{escape(clean(drawing.title))}</span>" if drawing.title else ""
    name = escape(key)
    styles = f"<style>{page_style()}</style>" if style else ""
    return (
        f'<section class="cutaway-drawing" id="{name}" aria-labelledby="{name}-title">{styles}'
        f'<{heading} class="cd-title" id="{name}-title">'
        f"{escape(question(drawing))} {finding}</{heading}>"
        f'<div class="cd-columns" tabindex="0" role="group" aria-label="{HOW_TO_READ}">'
        f'{drawn}</div><div class="cd-card" role="status" hidden></div>'
        '<p class="cd-hint">Swipe for the other tracks; touch a layer for its numbers.</p>'
        f"{_notes(drawing)}{_missing(drawing)}{_table(drawing)}"
        f'<script type="text/plain" class="cd-svg">{_packed(svg_text(drawing))}</script></section>'
    )


def page_style(mode: ColourMode | None = None) -> str:
    """The style sheet: of one mode; or light, and dark by preference or the page's data-theme."""
    layout = _resource("drawing.css")
    if mode is not None:
        return shapes_style() + layout + _mode_rules(mode, ".cutaway-drawing")
    preferred = _mode_rules("dark", ":root:not([data-theme=light]) .cutaway-drawing")
    chosen = _mode_rules("dark", ":root[data-theme=dark] .cutaway-drawing")
    return (
        f"{shapes_style()}{layout}{_mode_rules('light', '.cutaway-drawing')}"
        f"@media screen and (prefers-color-scheme:dark){{{preferred}}}@media screen{{{chosen}}}"
    )


def page_script() -> str:
    """The script: numbers of the layer under the pointer, theme, download."""
    return _resource("drawing.js")


def _mode_rules(mode: ColourMode, scope: str) -> str:
    of = colours(mode)
    names = "".join(f"--cd-{name}:{of[name]};" for name in _PAGE_COLOURS)
    return f"{scope}{{{names}color-scheme:{mode}}}{colour_rules(mode, scope)}"


def _column(
    drawing: Drawing, column: Column, bands: Bands, span: float, links: Mapping[str, str]
) -> str:
    """A column as an SVG; the first one stays in sight."""
    wide, high = marks.num(column.width), marks.num(column_height(drawing, bands))
    drawn = draw_column(drawing, column, bands, span, narrow=True, link=links.get(column.name, ""))
    label = escape(clean(f"{column.question}: {column.sentence} {' '.join(column.label)}"))
    sticky = "" if column.grid else " cd-stack"
    return (
        f'<svg class="cd-column{sticky} {column.hue}" role="img" aria-label="{label}" '
        f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">{drawn}'
        f'<g transform="translate(0,{marks.num(bands.top)})">'
        f"{hit_rows(column.texts, Rows(drawing.blocks + 1), column.width)}</g></svg>"
    )


def _notes(drawing: Drawing) -> str:
    seen = "".join(f"<li>{escape(clean(one.sentence))}</li>" for one in drawing.observations)
    observations = f'<ul class="cd-observations">{seen}</ul>' if seen else ""
    return f'{observations}<p class="cd-foot">{escape(footer(drawing))}</p>'


def _missing(drawing: Drawing) -> str:
    """The command for each track that is not measured."""
    items = "".join(
        f"<dt>{escape(clean(t.question))} <span>{escape(clean(t.name))}</span></dt>"
        f"<dd><code>{escape(clean(t.command))}</code></dd>"
        for t in drawing.tracks
        if not t.measured and t.command
    )
    return (
        f'<div class="cd-missing"><h2>Not measured yet</h2><dl>{items}</dl></div>' if items else ""
    )


def _table(drawing: Drawing) -> str:
    """All numbers, a row per layer from the last one down."""
    heads = ["layer", "word", *(name for name, _ in _series(drawing))]
    head = "".join(f'<th scope="col">{escape(clean(name))}</th>' for name in heads)
    lines = "".join(
        f'<tr><th scope="row">{n}</th><td>{escape(word_text(drawing, n))}</td>'
        + "".join(f"<td>{value}</td>" for value in _cells(drawing, n))
        + "</tr>"
        for n in range(drawing.blocks, -1, -1)
    )
    return (
        '<details class="cd-numbers"><summary>All numbers</summary><div tabindex="0" role="region" '
        f'aria-label="All numbers"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody>'
        "</table></div></details>"
    )


def _series(drawing: Drawing) -> Iterator[tuple[str, tuple[int, str]]]:
    """The heading of each column of numbers, and where its values are."""
    for at, track in enumerate(drawing.tracks):
        for name in SERIES[track.kind]:
            if track.series.get(name):
                main = name == SERIES[track.kind][0]
                yield (track.name if main else f"{track.name}, {name}"), (at, name)


def _cells(drawing: Drawing, layer: int) -> Iterator[str]:
    for _, (at, name) in _series(drawing):
        track = drawing.tracks[at]
        value = value_at(track, name, layer)
        yield DASH if value is None else number(track, value)


def _packed(text: str) -> str:
    """A file inside the page, compressed: a browser can unpack it."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _resource(name: str) -> str:
    return files("cutaway.report.drawing").joinpath(name).read_text(encoding="utf-8")
