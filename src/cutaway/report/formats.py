"""Formats numbers and names for reading: three significant digits, escaped labels."""

import html
import math
import re

DASH = "–"


def number(value: float | None) -> str:
    """A value with three significant digits; integers in full; a dash for a missing value."""
    if value is None or not math.isfinite(value):
        return DASH
    if float(value).is_integer() and abs(value) < 1e15 and abs(value) >= 10:
        return f"{int(value):,}"
    if value != 0 and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{_three_digits(value):,.{_decimals(value)}f}"


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    """`0.781 [0.760, 0.802]`; only the mean without an interval."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return number(mean)
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def count(value: float | None) -> str:
    """A large count in short form: `135 M`, `1.24 B`, `9,500`."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) < 9999.5:
        return f"{round(value):,}"
    steps = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
    # 999,600 would round to 1,000 k, so the next unit starts slightly earlier.
    step, letter = next(s for s in steps if abs(value) >= s[0] * 0.9995)
    return f"{_three_digits(value / step):g} {letter}"


def change(value: float, unit: str, digits: int = 2) -> str:
    """`rises by 0.08 nats`, `falls by 0.08 nats`: a direction in words, never a minus sign."""
    size = f"{abs(value):.{digits}f}"
    if float(size) == 0:
        return f"changes by less than {10**-digits:.{digits}f} {unit}"
    return f"{'rises' if value > 0 else 'falls'} by {size} {unit}"


def duration(seconds: float | None) -> str:
    """Seconds as `0.42 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 9.95:
        return f"{number(seconds)} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{whole} s"


def megabytes(value: float | None) -> str:
    """Memory in MB or GB."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{number(_three_digits(value / 1024))} GB" if value >= 1024 else f"{round(value)} MB"


def file_size(value: float) -> str:
    """Bytes as `950 B`, `12.4 kB`, `538 MB`, `2.1 GB`."""
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= step:
            return f"{_three_digits(value / step):g} {unit}"
    return f"{int(value)} B"


def figure_label(text: object, limit: int = 60) -> str:
    """Text from data as a figure label: shortened to `limit` and HTML-escaped.

    Plotly interprets a subset of HTML in every label.
    """
    return html.escape(shorten(text, limit), quote=False)


def shorten(text: object, limit: int = 60) -> str:
    """Text on one line, shortened in the middle: names often differ only at the end."""
    line = re.sub(r"\s+", " ", str(text)).strip()
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 3
    return line[: limit - 1 - tail] + "…" + line[len(line) - tail :]


def layer_order(layers: str) -> tuple[int, int, str]:
    """A sort key: single layers by number, then layer mixes by name, then rows without a layer."""
    if layers.isdigit():
        return (0, int(layers), "")
    return (2, 0, layers) if layers in ("-", "") else (1, 0, layers)


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _decimals(value: float) -> int:
    """The number of decimals that shows three significant digits."""
    size = abs(_three_digits(value))
    if size == 0:
        return 0
    # A perfect score is shown as 1.000, aligned with 0.xyz.
    return 3 if size == 1 else max(0, 2 - math.floor(math.log10(size)))
