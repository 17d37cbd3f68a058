"""Shapes and texts as SVG."""

from collections.abc import Iterable, Sequence
from html import escape

from cutaway.report.drawing.text_width import clean, is_right_to_left

Point = tuple[float, float]


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    short = f"{value:.1f}".removesuffix(".0")
    return "0" if short == "-0" else short


def text(
    name: str,
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    size: float = 0,
    more: str = "",
) -> str:
    """A text of the class `name`; right-to-left text keeps its place."""
    content = clean(content)
    rtl = is_right_to_left(content)
    if rtl:
        anchor = {"start": "end", "end": "start"}.get(anchor, anchor)
    attributes = (
        ("text-anchor", anchor if anchor != "start" else ""),
        ("direction", "rtl" if rtl else ""),
        ("font-size", num(size) if size else ""),
    )
    extra = "".join(f' {key}="{value}"' for key, value in attributes if value)
    return f'<text class="{name}" x="{num(x)}" y="{num(y)}"{extra}{more}>{escape(content)}</text>'


def title(content: str) -> str:
    """The text that a pointer shows; lines stay lines."""
    return f"<title>{escape(chr(10).join(clean(line) for line in content.splitlines()))}</title>"


def box(x0: float, x1: float, y0: float, y1: float) -> str:
    """A rectangle as part of a path."""
    x0, x1 = sorted((x0, x1))
    return f"M{num(x0)},{num(y0)}h{num(x1 - x0)}v{num(y1 - y0)}h{num(x0 - x1)}z"


def polygon(points: Sequence[Point]) -> str:
    """A closed shape as part of a path."""
    return "M" + "L".join(f"{num(x)},{num(y)}" for x, y in points) + "z"


def stroke(points: Sequence[Point]) -> str:
    """An open line as part of a path."""
    return "M" + "L".join(f"{num(x)},{num(y)}" for x, y in points) if points else ""


def ring(x: float, y: float, radius: float) -> str:
    """A circle as part of a path."""
    r, d = num(radius), num(2 * radius)
    return f"M{num(x - radius)},{num(y)}a{r},{r} 0 1 0 {d},0a{r},{r} 0 1 0 -{d},0z"


class Paths:
    """Shapes by class, one path per class: few elements, small files."""

    def __init__(self, *order: str) -> None:
        self._parts: dict[str, list[str]] = {name: [] for name in order}

    def add(self, name: str, part: str) -> None:
        """Add a part to the path of a class; classes are drawn in the order given, then of use."""
        self._parts.setdefault(name, []).append(part)

    def svg(self) -> str:
        """The paths."""
        return "".join(path(name, parts) for name, parts in self._parts.items())


def path(name: str, parts: Iterable[str]) -> str:
    """A path of the class; nothing without parts."""
    d = "".join(parts)
    return f'<path class="{name}" d="{d}"/>' if d else ""
