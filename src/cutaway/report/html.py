"""One self-contained HTML page that needs no network.

Everything that comes from data is escaped. A content security policy forbids all requests and all
scripts except the page's own, which are listed by their checksums.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from cutaway.core.errors import Missing
from cutaway.report import sections, theme
from cutaway.report.drawing.page import page_script, page_style
from cutaway.report.drawing.values import Drawing
from cutaway.report.inline_scripts import content_security_policy, escape_script
from cutaway.report.records import RecordLike
from cutaway.store.files import write_atomic

# Limit for all figures; plotly.js itself takes about 5 MB of the promised 15.
MAX_FIGURE_BYTES = 8_500_000


@dataclass
class EmbeddedFigures:
    """The figures of a page as JSON, up to a total size."""

    room: int
    figures: dict[str, str] = field(default_factory=dict)

    def add(self, figure: go.Figure) -> str | None:
        """Add a figure; returns its key, or None when it doesn't fit."""
        text = _figure_json(figure)
        if len(text) > self.room:
            return None
        self.room -= len(text)
        name = f"p{len(self.figures)}"
        self.figures[name] = text
        return name

    def as_json(self) -> str:
        """All figures as one JSON object, safe inside a script element."""
        return escape_script("{" + ",".join(f'"{k}":{v}' for k, v in self.figures.items()) + "}")


def write_html(
    records: Sequence[RecordLike],
    path: Path | str,
    *,
    title: str = "Cutaway report",
    story: str = "",
    note: str = "",
    drawings: Sequence[Drawing] = (),
) -> Path:
    """Write the page of these runs atomically: `note`, the drawings, `story`, then the runs."""
    path = Path(path)
    text = html_page(records, title=title, story=story, note=note, drawings=drawings)
    write_atomic(path, text.encode("utf-8"))
    return path


def html_page(
    records: Sequence[RecordLike],
    *,
    title: str = "Cutaway report",
    story: str = "",
    note: str = "",
    drawings: Sequence[Drawing] = (),
    room: int = MAX_FIGURE_BYTES,
) -> str:
    """The page as text; figures that exceed `room` bytes are omitted and counted."""
    if not records:
        raise Missing("No runs to report on. Make one first, for example with: cutaway tour")
    pictures = EmbeddedFigures(room)
    body = (
        sections.drawing_section(drawings, records)
        + sections.story_section(story)
        + sections.overview_section(records)
        + "".join(
            sections.run_section(record, f"run-{i}", pictures.add)
            for i, record in enumerate(records)
        )
    )
    templates = {mode: theme.template(mode).to_plotly_json() for mode in ("light", "dark")}
    style, script, plotly = _resource("page.css"), _resource("page.js"), get_plotlyjs()
    if drawings:
        style, script = style + page_style(), script + page_script()
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{content_security_policy(plotly, script)}">
<title>{escape(title)}</title>
<style>{style}</style>
<script>{plotly}</script>
</head>
<body>
<div class="bar"><div><strong>Cutaway</strong><nav>{sections.run_links(records)}</nav>
<button id="theme" type="button" title="Switch the theme">Light / dark</button></div></div>
<main>
<h1>{escape(title)}</h1>
{f'<p class="note">{escape(note)}</p>' if note else ""}
{body}
<footer>Made by Cutaway. This file is self-contained and makes no network requests.</footer>
</main>
<script type="application/json" id="pictures">{pictures.as_json()}</script>
<script type="application/json" id="templates">{escape_script(json.dumps(templates))}</script>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return files("cutaway.report").joinpath(name).read_text(encoding="utf-8")


def _figure_json(figure: go.Figure) -> str:
    content = figure.to_plotly_json()
    # The templates are stored once for all figures.
    content["layout"].pop("template", None)
    name = str(content["layout"].get("title", {}).get("text", "figure"))
    content["config"] = theme.plotly_config("-".join(name.lower().split()))
    return json.dumps(_rounded(content), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    """The same values with five significant digits, which makes the page smaller."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return _rounded(value.tolist()) if hasattr(value, "tolist") else value
