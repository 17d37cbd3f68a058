"""The drawing as a file: a web page, SVG, PNG or PDF, by the name's ending."""

import asyncio
import base64
import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadSpec, Missing, RunError
from cutaway.report.drawing.page import html_text
from cutaway.report.drawing.svg import svg_text
from cutaway.report.drawing.values import Drawing
from cutaway.store.files import write_atomic

PNG_SCALE = 2
_PIXELS_PER_INCH = 96
_TIMEOUT = 120.0


def write_drawing(drawing: Drawing, path: Path | str) -> Path:
    """Write the drawing atomically; the ending of the name decides the format."""
    path = Path(path)
    check_suffix(path)
    write_atomic(path, WRITERS[path.suffix.lower()](drawing))
    return path


def check_suffix(path: Path | str) -> None:
    """Refuse a name whose ending is no known format."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise BadSpec(
            f"Unknown file type {suffix or 'without an ending'!r} of {str(path)!r}. Known: {known}."
        )


def _html(drawing: Drawing) -> bytes:
    return html_text(drawing).encode("utf-8")


def _svg(drawing: Drawing) -> bytes:
    return svg_text(drawing).encode("utf-8")


def _png(drawing: Drawing) -> bytes:
    svg = svg_text(drawing)
    wide, high = picture_size(svg)
    clip = {"x": 0, "y": 0, "width": wide, "height": high, "scale": PNG_SCALE}
    options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    return _in_browser(svg, "Page.captureScreenshot", options)


def _pdf(drawing: Drawing) -> bytes:
    svg = svg_text(drawing)
    wide, high = picture_size(svg)
    options = {
        "paperWidth": wide / _PIXELS_PER_INCH,
        # A pixel more: rounding must not begin a second page.
        "paperHeight": (high + 1) / _PIXELS_PER_INCH,
        "printBackground": True,
        **{f"margin{side}": 0 for side in ("Top", "Bottom", "Left", "Right")},
    }
    return _in_browser(svg, "Page.printToPDF", options)


WRITERS: dict[str, Callable[[Drawing], bytes]] = {
    ".html": _html,
    ".svg": _svg,
    ".png": _png,
    ".pdf": _pdf,
}


def picture_size(svg: str) -> tuple[float, float]:
    """Width and height in pixels, from the root element."""
    found = re.match(r'<svg [^>]*width="([\d.]+)" height="([\d.]+)"', svg)
    assert found is not None
    return float(found[1]), float(found[2])


def _in_browser(svg: str, command: str, options: Mapping[str, Any]) -> bytes:
    """What the browser answers to a command of its DevTools when it shows the picture."""
    try:
        import choreographer
        from choreographer import errors
    except ImportError:
        raise Missing(
            "Pictures need the package kaleido. Install it with: pip install 'cutaway[figures]'"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "drawing.html"
        page.write_text(_light_page(svg), encoding="utf-8")
        work = _show(choreographer, page.as_uri(), command, options)
        try:
            # In a thread of its own, because a notebook or the app may have a running loop.
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(asyncio.run, asyncio.wait_for(work, _TIMEOUT)).result()
        except errors.ChromeNotFoundError:
            raise Missing(
                "Pictures need Chrome or Chromium. "
                "Install one, or set BROWSER_PATH=/path/to/chromium"
            ) from None
        except (
            errors.BrowserFailedError,
            errors.BrowserClosedError,
            errors.BrowserDepsError,
            errors.ChannelClosedError,
            errors.DevtoolsProtocolError,
            TimeoutError,
        ) as error:
            raise RunError(f"The browser could not draw the pictures: {error}.") from error
    if "data" not in answer:
        raise RunError(f"The browser could not draw the pictures: {answer}.")
    return base64.b64decode(answer["data"])


async def _show(
    choreographer: Any, address: str, command: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    async with choreographer.Browser(headless=True) as browser:
        tab = await browser.create_tab()
        await tab.send_command("Page.enable")
        await tab.send_command(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "light"}]},
        )
        loaded = tab.subscribe_once("Page.loadEventFired")
        await tab.send_command("Page.navigate", {"url": address})
        await loaded
        answer: dict[str, Any] = await tab.send_command(command, dict(options))
    result: dict[str, Any] = answer.get("result", answer)
    return result


def _light_page(svg: str) -> str:
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><style>@page{margin:0}'
        f"body{{margin:0}}svg{{display:block}}</style></head><body>{svg}</body></html>"
    )
