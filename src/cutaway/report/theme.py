"""The style of all figures: light and dark, safe for colour-blind readers, with captions.

Trace colours are readable on both backgrounds, so switching between light and dark only replaces
the template.
"""

import html
import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import plotly.graph_objects as go

from cutaway.report.colours import MODE_COLOURS as MODE_COLOURS
from cutaway.report.colours import NEUTRAL as NEUTRAL
from cutaway.report.colours import PALETTE as PALETTE
from cutaway.report.colours import ColourMode as ColourMode

FONT = "Inter, 'Source Sans Pro', system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
SEQUENTIAL = "Cividis"

# Plotly's marker size; how much larger a marker is under another one, and how often that adds up.
MARKER_SIZE, RING, MAX_RINGS = 6, 5, 4
# Points closer than a 100th of the axis hide each other. Clouds of dots are left alone.
SPOTS, MAX_RINGED_POINTS = 100, 1000

# Baselines: grey or brown, distinguished by their dash.
BASELINE_STYLES: dict[str, tuple[str, str, str]] = {
    "majority": ("most frequent class", NEUTRAL, "dot"),
    "mean": ("mean of the targets", NEUTRAL, "dot"),
    "bow": ("bag of words", "#9b7653", "dash"),
    "tfidf": ("TF-IDF words", "#9b7653", "dashdot"),
    "twin": ("random weights", "#6d8a4f", "dash"),
    "control": ("shuffled labels", "#a0709f", "dot"),
}

# The most ticks that are readable on a laptop.
MAX_TICKS = 12


def template(mode: ColourMode = "light") -> go.layout.Template:
    """The plotly template of a mode; the background is transparent."""
    c = MODE_COLOURS[mode]
    axis = _axis(c)
    layout = {
        "font": {"family": FONT, "size": 13, "color": c["ink"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(PALETTE),
        "xaxis": {**axis, "showgrid": False, "zeroline": False},
        "yaxis": axis,
        "title": {
            "font": {"size": 16, "color": c["ink"]},
            "subtitle": {"font": {"size": 12, "color": c["soft"]}},
        },
        "legend": {"font": {"size": 12, "color": c["ink"]}},
        "hoverlabel": {
            "bgcolor": c["background"],
            "bordercolor": c["line"],
            "font": {"family": FONT, "size": 12, "color": c["ink"]},
            "align": "left",
        },
        "annotationdefaults": {"font": {"size": 12, "color": c["soft"]}, "showarrow": False},
        "coloraxis": {
            "colorbar": {
                "outlinewidth": 0,
                "thickness": 12,
                "tickfont": {"size": 11, "color": c["soft"]},
                "title": {"font": {"size": 12, "color": c["soft"]}, "side": "right"},
            }
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": c["soft"], "activecolor": c["ink"]},
    }
    return go.layout.Template(layout=layout)


def _axis(c: dict[str, str]) -> dict[str, Any]:
    """The style of an axis."""
    return {
        "gridcolor": c["grid"],
        "linecolor": c["line"],
        "zerolinecolor": c["line"],
        "tickcolor": c["line"],
        "ticks": "outside",
        "ticklen": 4,
        "showline": True,
        "automargin": True,
        "title": {"font": {"size": 13, "color": c["soft"]}, "standoff": 10},
        "tickfont": {"size": 12, "color": c["soft"]},
    }


def finish_figure(
    figure: go.Figure, *, title: str, caption: str, height: int = 420, pointer: str = ""
) -> go.Figure:
    """Add title, caption, style and margins to a figure.

    `pointer` is what the mouse pointer shows: it follows the caption on a page, but not in a file.
    """
    titled = any(note.yref == "paper" for note in figure.layout.annotations)
    figure.update_layout(
        template=template("light"),
        title={
            "text": title,
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"l": 8, "t": 14},
        },
        height=height,
        margin={"l": 8, "r": 16, "t": 72 if titled else 52, "b": 8},
        meta={"caption": caption, "pointer": pointer},
        hovermode="closest",
        # Scrolling the page on a touch screen must not zoom the figure.
        dragmode=False,
        legend={
            # On a phone a long legend scrolls instead of shrinking the figure.
            "maxheight": 110,
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
    )
    return show_hidden_points(_integer_ticks(figure))


def _integer_ticks(figure: go.Figure) -> go.Figure:
    """An axis with few integers (layers, heads, steps) gets a tick at each."""
    along: dict[str, list[Any]] = {}
    for trace in figure.data:
        for way in ("x", "y"):
            number = (getattr(trace, f"{way}axis", None) or way)[1:]
            values = getattr(trace, way, None)
            along.setdefault(f"{way}axis{number}", []).extend(() if values is None else values)
    for name, values in along.items():
        axis = figure.layout[name]
        is_integer = len(values) > 1 and all(_is_integer(value) for value in values)
        if is_integer and axis.type != "log" and max(values) - min(values) <= MAX_TICKS:
            axis.update(tick0=0, dtick=1)
    return figure


def show_hidden_points(figure: go.Figure) -> go.Figure:
    """Where points of several lines coincide, draw the lower ones larger: each shows as a ring."""
    lines = [t for t in figure.data if t.type == "scatter" and "markers" in (t.mode or "")]
    spots = list(zip(lines, _spots_of(figure, lines), strict=True))
    if sum(len(of_line) for _, of_line in spots) > MAX_RINGED_POINTS:
        return figure
    above: Counter[Any] = Counter()
    for line, of_line in reversed(spots):
        size = line.marker.size or MARKER_SIZE
        rings = [min(above[spot], MAX_RINGS) for spot in of_line]
        above.update(set(of_line))
        if any(rings) and isinstance(size, int | float):
            line.marker.size = [size + RING * ring for ring in rings]
            figure.update_layout(legend_itemsizing="constant")
    return figure


def _spots_of(figure: go.Figure, lines: Sequence[Any]) -> list[list[Any]]:
    """For each line: the spot of each of its points, a panel and a place on both of its axes."""
    places: list[list[list[Any]]] = []
    for way in ("x", "y"):
        values = [list(() if line[way] is None else line[way]) for line in lines]
        names = [line[f"{way}axis"] or way for line in lines]
        log = {name: figure.layout[f"{way}axis{name[1:]}"].type == "log" for name in names}
        scaled = [
            [_scaled(value, log=log[name]) for value in of_line]
            for name, of_line in zip(names, values, strict=True)
        ]
        known: dict[str, list[float]] = {}
        for name, of_line in zip(names, scaled, strict=True):
            known.setdefault(name, []).extend(v for v in of_line if isinstance(v, float))
        width = {name: (max(all_) - min(all_)) or 1.0 for name, all_ in known.items() if all_}
        places.append(
            [
                [
                    (name, round(SPOTS * v / width[name]) if isinstance(v, float) else v)
                    for v in of_line
                ]
                for name, of_line in zip(names, scaled, strict=True)
            ]
        )
    return [list(zip(xs, ys, strict=False)) for xs, ys in zip(*places, strict=True)]


def _scaled(value: Any, *, log: bool) -> Any:
    """A finite number as a float, on a log axis its logarithm; anything else as text."""
    if not isinstance(value, Real) or not math.isfinite(value):
        return str(value)
    number = float(value)
    return math.log(number) if log and number > 0 else number


def _is_integer(value: Any) -> bool:
    # Integral includes numpy integers, which plotly converts columns to.
    return isinstance(value, Integral) and not isinstance(value, bool)


def caption(figure: go.Figure, *, interactive: bool = True) -> str:
    """The figure's caption; on an interactive page also what the mouse pointer shows."""
    meta = figure.layout.meta or {}
    parts = [meta.get("caption", ""), meta.get("pointer", "") if interactive else ""]
    return " ".join(str(part) for part in parts if part)


def with_colour_mode(figure: go.Figure, mode: ColourMode) -> go.Figure:
    """A copy of the figure in light or dark mode."""
    copy = go.Figure(figure)
    copy.update_layout(template=template(mode))
    return copy


def as_picture(figure: go.Figure, mode: ColourMode = "light", width: int = 900) -> go.Figure:
    """A copy for a picture file: solid background, caption below the title."""
    copy = with_colour_mode(figure, mode)
    lines = textwrap.wrap(
        html.escape(caption(figure, interactive=False)), width=max(30, int(width / 6.9))
    )
    background = MODE_COLOURS[mode]["background"]
    extra = 17 * len(lines)
    copy.update_layout(
        width=width,
        height=(figure.layout.height or 420) + extra,
        paper_bgcolor=background,
        plot_bgcolor=background,
        title_subtitle_text="<br>".join(lines),
        title_pad={"l": 24, "t": 20},
        margin={"l": 24, "r": 32, "t": figure.layout.margin.t + 18 + extra, "b": 16},
    )
    return copy


def translucent(colour: str, alpha: float = 0.16) -> str:
    """A colour of the palette with transparency, for interval bands."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def assign_colours(names: Sequence[str]) -> dict[str, str]:
    """One colour per name, in the given order; colours repeat when there are more names."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def unit_coloraxis(title: str) -> dict[str, Any]:
    """A colour axis for values from 0 to 1 with a title."""
    bar = {"title": {"text": title}}
    return {"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1, "colorbar": bar}


def plotly_config(filename: str) -> dict[str, Any]:
    """Plotly's buttons: download as PNG, zoom, reset; no external links."""
    return {
        "displaylogo": False,
        "responsive": True,
        "modeBarButtons": [["toImage", "zoom2d", "resetScale2d"]],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": filename},
    }
