"""Figures as pictures (PNG, SVG, PDF) and as the numbers in them (CSV)."""

import csv
import html
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from cutaway.core.errors import BadSpec, Missing, RunError
from cutaway.report import theme
from cutaway.report.figures import figures
from cutaway.report.records import RecordLike
from cutaway.report.tables import csv_text

PICTURE_FORMATS = ("png", "svg", "pdf")


def write_pictures(
    drawn: Mapping[str, go.Figure],
    folder: Path,
    *,
    formats: Sequence[str] = ("png",),
    mode: theme.ColourMode = "light",
    width: int = 900,
) -> list[Path]:
    """Write each figure as `<name>.<format>` in the folder, all with one browser."""
    unknown = [f for f in formats if f not in PICTURE_FORMATS]
    if unknown:
        raise BadSpec(
            f"Unknown picture format {unknown[0]!r}. Known: {', '.join(PICTURE_FORMATS)}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {
        folder / f"{name}.{kind}": (theme.as_picture(figure, mode, width), kind)
        for name, figure in drawn.items()
        for kind in formats
    }
    _render_pictures(jobs)
    return list(jobs)


def write_run_pictures(
    record: RecordLike, folder: Path, *, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """Write all figures of a run as pictures, with their data as CSV."""
    drawn = figures(record.rows, record)
    paths = write_pictures(drawn, folder, formats=formats)
    for name, figure in drawn.items():
        table = folder / f"{name}.csv"
        table.write_text(figure_csv(figure), encoding="utf-8")
        paths.append(table)
    return paths


def _render_pictures(jobs: Mapping[Path, tuple[go.Figure, str]]) -> None:
    try:
        import kaleido
        from kaleido.errors import BrowserFailedError, ChromeNotFoundError, KaleidoError
    except ImportError:
        raise Missing(
            "Pictures need the package kaleido. Install it with: pip install 'cutaway[figures]'"
        ) from None
    wanted = [
        {"fig": figure, "path": path, "opts": {"format": kind, "scale": 2}}
        for path, (figure, kind) in jobs.items()
    ]
    try:
        # Without mathjax=False kaleido fetches MathJax from a CDN.
        kaleido.write_fig_from_object_sync(wanted, kopts={"mathjax": False})
    except ChromeNotFoundError:
        raise Missing(
            "Pictures need Chrome or Chromium. Install one, or set BROWSER_PATH=/path/to/chromium"
        ) from None
    except (BrowserFailedError, KaleidoError) as error:
        raise RunError(f"The browser could not draw the pictures: {error}.") from error


def figure_csv(figure: go.Figure) -> str:
    """The figure's data as CSV: one line per point, with the name of its series."""
    lines = [line for trace in figure.data for line in _points(trace)]
    columns = list(dict.fromkeys(key for line in lines for key in line))
    out = io.StringIO()
    table = csv.DictWriter(out, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    return out.getvalue()


def _points(trace: Any) -> Iterator[dict[str, Any]]:
    meta = trace.meta or {}
    if meta.get("band"):
        return
    if trace.type == "heatmap":
        yield from _heatmap_points(trace, meta.get("cell", ()))
        return
    columns = meta.get("columns", ())
    panel = {"panel": trace.xaxis} if (trace.xaxis or "x") != "x" else {}
    extras = trace.customdata if trace.customdata is not None else ()
    for x, y, extra in zip_longest(trace.x, trace.y, extras, fillvalue=()):
        more = extra if isinstance(extra, Iterable) and not isinstance(extra, str) else (extra,)
        yield {
            "series": _csv_value(trace.name),
            **panel,
            "x": _csv_value(x),
            "y": _csv_value(y),
            **{c: _csv_value(v) for c, v in zip(columns, more, strict=False)},
        }


def _heatmap_points(trace: Any, cell: str | Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each cell of a heatmap; `cell` names its extra values."""
    names = [cell] if isinstance(cell, str) else list(cell)
    for i, y in enumerate(trace.y):
        for j, x in enumerate(trace.x):
            extra = {name: _csv_value(trace.customdata[i][j][k]) for k, name in enumerate(names)}
            yield {"x": _csv_value(x), "y": _csv_value(y), "value": trace.z[i][j], **extra}


def _csv_value(value: Any) -> Any:
    """A label without the figure's escapes, safe for a spreadsheet."""
    return csv_text(html.unescape(value)) if isinstance(value, str) else value
