"""One self-contained HTML page: opens from a disk, without a network, for years.

Everything that comes from data is escaped. The page also forbids itself every request, and every
script but its own two (by their checksums), so that nothing in a result can run or call out.
"""

import base64
import hashlib
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
from cutaway.report.records import RecordLike
from cutaway.store.files import write_atomic

# Pictures together may take this much; plotly.js itself takes about 5 MB of the promised 15.
MAX_FIGURE_BYTES = 8_500_000


@dataclass
class EmbeddedFigures:
    """The figures of a page, kept as data beside it, up to a size."""

    room: int
    kept: dict[str, str] = field(default_factory=dict)

    def add(self, figure: go.Figure) -> str | None:
        """The name under which the figure is kept; None when the page is full."""
        text = _figure_json(figure)
        if len(text) > self.room:
            return None
        self.room -= len(text)
        name = f"p{len(self.kept)}"
        self.kept[name] = text
        return name

    def as_json(self) -> str:
        """All figures as one JSON object, safe inside a script element."""
        return escape_script("{" + ",".join(f'"{k}":{v}' for k, v in self.kept.items()) + "}")


def write_html(
    records: Sequence[RecordLike],
    path: Path | str,
    *,
    title: str = "Cutaway report",
    story: str = "",
) -> Path:
    """The page of these runs at `path`, whole or not at all; `story` stands at its head."""
    path = Path(path)
    write_atomic(path, html_page(records, title=title, story=story).encode("utf-8"))
    return path


def html_page(
    records: Sequence[RecordLike],
    *,
    title: str = "Cutaway report",
    story: str = "",
    room: int = MAX_FIGURE_BYTES,
) -> str:
    """The page as text; figures that don't fit into `room` bytes are left out and counted."""
    if not records:
        raise Missing("No runs to report on. Make one first, for example with: cutaway tour")
    pictures = EmbeddedFigures(room)
    body = (
        sections.story_section(story)
        + sections.overview_section(records)
        + "".join(
            sections.run_section(record, f"run-{i}", pictures.add)
            for i, record in enumerate(records)
        )
    )
    looks = {mode: theme.template(mode).to_plotly_json() for mode in ("light", "dark")}
    style, script, plotly = _resource("page.css"), _resource("page.js"), get_plotlyjs()
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_content_security_policy(plotly, script)}">
<title>{escape(title)}</title>
<style>{style}</style>
<script>{plotly}</script>
</head>
<body>
<div class="bar"><div><strong>Cutaway</strong><nav>{sections.run_links(records)}</nav>
<button id="theme" type="button" title="Switch the colours">Light / dark</button></div></div>
<main>
<h1>{escape(title)}</h1>
{body}
<footer>Made by Cutaway. This file is complete: it needs no network and calls nobody.</footer>
</main>
<script type="application/json" id="pictures">{pictures.as_json()}</script>
<script type="application/json" id="looks">{escape_script(json.dumps(looks))}</script>
<script>{script}</script>
</body>
</html>
"""


def escape_script(text: str) -> str:
    """JSON that can stand inside a script element: no `<` can end it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _content_security_policy(*scripts: str) -> str:
    sums = " ".join(f"'sha256-{_sha(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {sums}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _sha(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _resource(name: str) -> str:
    return files("cutaway.report").joinpath(name).read_text(encoding="utf-8")


def _figure_json(figure: go.Figure) -> str:
    content = figure.to_plotly_json()
    # The two looks are kept once for all figures.
    content["layout"].pop("template", None)
    name = str(content["layout"].get("title", {}).get("text", "figure"))
    content["config"] = theme.plotly_config("-".join(name.lower().split()))
    return json.dumps(_rounded(content), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    """The same figure with five significant digits: no eye sees more, and the page is smaller."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return _rounded(value.tolist()) if hasattr(value, "tolist") else value
