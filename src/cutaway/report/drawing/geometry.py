"""Where things are: rows of layers, widths of columns, axes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PICTURE_WIDTH = 1352
STACK_WIDTH = 208
GAP = 20
"""White space at the right of each column."""
MIN_COLUMN, MAX_COLUMN = 128, 178
STRIP = 20
BAR = 0.72
"""A bar's share of its row."""
_PLOT_HEIGHT, _MIN_ROW, _MAX_ROW, _MIN_PLOT = 610, 9.0, 46.0, 170.0


@dataclass(frozen=True)
class Rows:
    """A row per layer, the last layer at the top, the embeddings at the bottom."""

    count: int

    @property
    def height(self) -> float:
        """The height of a row."""
        row = min(_MAX_ROW, max(_MIN_ROW, _PLOT_HEIGHT / self.count))
        return max(row, _MIN_PLOT / self.count)

    @property
    def total(self) -> float:
        """The height of all rows."""
        return self.count * self.height

    @property
    def step(self) -> int:
        """Every how many layers there is a number."""
        return 1 if self.count <= 17 else 5 if self.count <= 61 else 10

    def middle(self, layer: int) -> float:
        """The y of a layer's middle."""
        return (self.count - layer - 0.5) * self.height

    def edges(self, layer: int, share: float = BAR) -> tuple[float, float]:
        """The upper and lower y of a bar in the row."""
        half = share * self.height / 2
        return self.middle(layer) - half, self.middle(layer) + half

    def numbered(self) -> list[int]:
        """The layers whose numbers are shown; the last one always is."""
        last = self.count - 1
        space = max(1, round(self.step * 0.4))
        return [n for n in range(0, last, self.step) if last - n >= space] + [last]


@dataclass(frozen=True)
class Place:
    """Where a track is drawn."""

    rows: Rows
    width: float

    @property
    def right(self) -> float:
        """The right edge of the marks."""
        return self.width - GAP

    @property
    def layers(self) -> range:
        """All layers."""
        return range(self.rows.count)


def column_width(columns: int, space: float = PICTURE_WIDTH) -> float:
    """The width of a track, so that all fit into the space beside the stack if they can."""
    space = (space - STACK_WIDTH) / max(1, columns)
    return math.floor(min(MAX_COLUMN, max(MIN_COLUMN, space)))


@dataclass(frozen=True)
class Scale:
    """Values on an axis from `low` at `left` to `high` at `right`; `root`: a square-root axis."""

    low: float
    high: float
    left: float
    right: float
    root: bool = False

    def x(self, value: float) -> float:
        """The place of a value; values outside are at the edge."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        share = min(1.0, max(0.0, share))
        return self.left + (self.right - self.left) * (math.sqrt(share) if self.root else share)


def round_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round values from low to high, at most `most`."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    sizes = (m * 10**e for e in range(math.floor(math.log10(span)) - 2, 400) for m in (1, 2, 5))
    multiples = (
        (s, range(math.ceil(low / s - 1e-9), math.floor(high / s + 1e-9) + 1)) for s in sizes
    )
    step, counts = next((s, found) for s, found in multiples if len(found) <= most)
    return [n * step for n in counts]


def spread(places: Iterable[tuple[float, str]], widths: Sequence[float]) -> list[tuple[float, str]]:
    """The labels, without those that would touch one before; earlier ones are more important."""
    kept: list[tuple[float, float, str]] = []
    for (x, label), wide in zip(places, widths, strict=True):
        if all(abs(x - other) > (wide + space) / 2 + 6 for other, space, _ in kept):
            kept.append((x, wide, label))
    return [(x, label) for x, _, label in kept]
