"""Parts that figures share: stacked panels and baselines.

Panels are stacked vertically, so a figure is as readable on a phone as on a wide screen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cutaway.report import formats, theme

MAX_PANELS = 4
MAX_SERIES = 6
# Pixels between panels, and around them for title, axis and legend.
PANEL_GAP = 52
FIGURE_MARGIN = 175


@dataclass(frozen=True)
class StackedPanels:
    """A figure of stacked panels, one per title."""

    figure: go.Figure
    titles: tuple[str, ...]
    hidden: int
    """Number of panels that were omitted."""
    height: int
    """Height in pixels, with title, axis and legend."""


def stack_panels(titles: Sequence[str], *, each: int) -> StackedPanels:
    """Empty panels of `each` pixels, one per title, at most MAX_PANELS; a single one untitled."""
    shown = tuple(titles[:MAX_PANELS])
    plot = each * len(shown) + PANEL_GAP * (len(shown) - 1)
    figure = make_subplots(
        rows=len(shown),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=PANEL_GAP / plot if len(shown) > 1 else 0,
        subplot_titles=[formats.figure_label(t, 48) for t in shown] if len(titles) > 1 else None,
    )
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    return StackedPanels(figure, shown, len(titles) - len(shown), FIGURE_MARGIN + plot)


def draw_baseline(
    figure: go.Figure,
    kind: str,
    x: Sequence[float] | Sequence[str],
    y: Sequence[float | None],
    row: int,
    more: str = "",
) -> None:
    """Draw a baseline, flat or per layer; `more` is appended to its name."""
    words, colour, dash = theme.BASELINE_STYLES.get(kind, (kind, theme.NEUTRAL, "dot"))
    seen = any(trace.legendgroup == kind and trace.showlegend for trace in figure.data)
    figure.add_trace(
        go.Scatter(
            x=list(x),
            y=list(y),
            name=formats.figure_label(f"{words}{more}"),
            legendgroup=kind,
            showlegend=not seen,
            mode="lines",
            legendrank=2000,
            line={"color": colour, "dash": dash, "width": 1.6},
            hovertemplate="%{y:.3f}",
        ),
        row=row,
        col=1,
    )


def error_bars(cells: Sequence[Mapping[str, Any]], centre: str = "mean") -> dict[str, Any]:
    """Error bars from `low` to `high`; of length 0 for cells without an interval."""
    known = [None not in (c["low"], c["high"], c[centre]) for c in cells]
    above, below = (
        [abs(c[end] - c[centre]) if k else 0 for c, k in zip(cells, known, strict=True)]
        for end in ("high", "low")
    )
    return {
        "type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2,
    }  # fmt: skip


def omitted_note(lines: int, hidden: int) -> str:
    """A sentence about omitted lines and panels."""
    omitted = []
    if lines:
        omitted.append(f"{lines} more line{'s' if lines > 1 else ''}")
    if hidden:
        omitted.append(f"{hidden} more panel{'s' if hidden > 1 else ''}")
    return f" Not shown: {' and '.join(omitted)}." if omitted else ""
