"""The drawing in a terminal: a line per layer, bars of block characters."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from cutaway.console import printable
from cutaway.report import formats
from cutaway.report.drawing.columns import SCORES
from cutaway.report.drawing.layer_values import SHARES, finite, is_trained, is_undefined, value_at
from cutaway.report.drawing.layout import hues_of
from cutaway.report.drawing.palette import HUES
from cutaway.report.drawing.stack import has_words
from cutaway.report.drawing.svg import question
from cutaway.report.drawing.text_width import shown_word
from cutaway.report.drawing.values import SERIES, Drawing, Track
from cutaway.report.terminal import stdout_console

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_GAP, _NUMBER, _MIN_BAR, _MAX_BAR = 2, 5, 4, 14
_MIN_WORD, _MAX_WORD = 8, 16
_UNMEASURED, _UNTRAINED, _BELOW, _OBSERVED = "·", "×", "◂", "▌"
_SENTENCE = 120
_BAND = "#b8860b"


@dataclass(frozen=True)
class _Bars:
    """A column of bars: one series of a track, with the share of the bar's length per layer."""

    heading: str
    track: Track
    values: tuple[float | None, ...]
    shares: tuple[float | None, ...]
    hue: str


def print_drawing(drawing: Drawing) -> None:
    """Print the drawing on stdout, as wide as the terminal."""
    console = stdout_console()
    console.print(drawing_view(drawing, console.width))


def drawing_view(drawing: Drawing, width: int) -> RenderableType:
    """The drawing in lines of at most `width` columns; what doesn't fit is named below."""
    bars = list(_all_bars(drawing))
    left = 2 + len(str(drawing.blocks)) + _word_width(drawing)
    space = max(0, width - left)
    shown = bars[: space // (_GAP + _MIN_BAR + _NUMBER)]
    bar = min(_MAX_BAR, space // len(shown) - _GAP - _NUMBER) if shown else 0
    title = Text.assemble((printable(question(drawing)), "bold"), " ", printable(drawing.title))
    sentence = [Text(printable(f"“{_end(drawing)}”"), "italic")]
    lines = [_line(drawing, n, shown, bar) for n in range(drawing.blocks, -1, -1)]
    return Group(
        title,
        *(sentence if drawing.sentence and has_words(drawing) else []),
        Text(""),
        _headings(drawing, shown, bar),
        *lines,
        *_notes(drawing, shown, bars[len(shown) :]),
    )


def _all_bars(drawing: Drawing) -> Iterator[_Bars]:
    hues = hues_of(drawing)
    for track in drawing.tracks:
        for name in _drawn_series(track):
            values = tuple(_value(track, name, n) for n in range(drawing.blocks + 1))
            heading = f"{track.name} {name}" if len(_drawn_series(track)) > 1 else track.name
            shares = tuple(_share(track, values, value) for value in values)
            yield _Bars(heading, track, values, shares, HUES[hues[track.name]])


def _drawn_series(track: Track) -> list[str]:
    """The series with a bar: the main one; both of a pair; the sum of a skill's parts is one."""
    names = SERIES[track.kind] if track.kind == "fisher" else SERIES[track.kind][:1]
    return (
        [n for n in names if finite(track, n)]
        if track.kind != "skill"
        else ["sum"] * track.measured
    )


def _value(track: Track, name: str, layer: int) -> float | None:
    if name != "sum":
        return value_at(track, name, layer)
    parts = [value_at(track, part, layer) for part in SERIES[track.kind]]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _share(track: Track, values: Sequence[float | None], value: float | None) -> float | None:
    """The share of the bar: on the same axes as in the picture; negative below the baseline."""
    if value is None:
        return None
    most = max(v for v in values if v is not None)
    if track.kind == SCORES:
        base = track.baseline or 0.0
        top = most if track.top is None else track.top
        return (value - base) / (top - base) if top > base else float(value > base)
    if track.kind in ("agreement", "linearity"):
        return value
    share = value / most if most > 0 else 0.0
    return math.sqrt(share) if track.kind == "fisher" and share > 0 else share


def _line(drawing: Drawing, layer: int, shown: Sequence[_Bars], bar: int) -> Text:
    observed = any(one.first <= layer <= one.last for one in drawing.observations)
    number = f"{layer:>{len(str(drawing.blocks))}}"
    line = Text.assemble((_OBSERVED if observed else " ", _BAND), (number, "dim"), " ", end="")
    line.append_text(_word(drawing, layer))
    for bars in shown:
        line.append(" " * _GAP)
        line.append_text(_bar(bars, layer, bar))
    line.rstrip()
    line.no_wrap, line.overflow, line.end = True, "crop", "\n"
    return line


def _word(drawing: Drawing, layer: int) -> Text:
    word = drawing.words[layer] if layer < len(drawing.words) else None
    text = "" if word is None else printable(shown_word(word.text))
    style = "" if word is None else f"bold {HUES['orange']}" if word.final else "dim"
    return Text(_cut(text, _word_width(drawing)), style)


def _bar(bars: _Bars, layer: int, space: int) -> Text:
    value, share = bars.values[layer], bars.shares[layer]
    if value is None or share is None:
        mark = _sign(bars.track, layer)
        return Text(mark.ljust(space + _NUMBER), "dim")
    number = _short_number(bars.track, value).rjust(_NUMBER)
    drawn = _BELOW if share < 0 else blocks(share, space)
    return Text.assemble((drawn.ljust(space), bars.hue), number)


def _sign(track: Track, layer: int) -> str:
    """What is in place of a bar."""
    if is_undefined(track, layer):
        return ""
    return _UNMEASURED if is_trained(track, layer) else _UNTRAINED


def blocks(share: float, space: int) -> str:
    """A bar of block characters, in steps of an eighth; a thin one for a value of zero."""
    eighths = max(1, round(min(1.0, share) * space * 8))
    return _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _short_number(track: Track, value: float) -> str:
    """At most four characters: `0.98`, `43%`, `0.3%`."""
    if track.kind not in SHARES:
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}" if abs(value) < 1e4 else "…"
    percent = 100 * value
    if 0 < percent < 0.05:
        return "<.1%"
    short = f"{percent:.0f}%" if percent >= 9.95 or percent == 0 else f"{percent:.1f}%"
    return short if percent < 999.5 else "…"


def _headings(drawing: Drawing, shown: Sequence[_Bars], bar: int) -> Text:
    left = 2 + len(str(drawing.blocks))
    line = Text(
        " " * left + _cut("word" if has_words(drawing) else "", _word_width(drawing)), "bold"
    )
    for bars in shown:
        line.append(" " * _GAP)
        line.append(_cut(printable(bars.heading), bar + _NUMBER), f"bold {bars.hue}")
    line.rstrip()
    line.no_wrap, line.overflow = True, "crop"
    return line


def _notes(drawing: Drawing, shown: Sequence[_Bars], left_out: Sequence[_Bars]) -> Iterator[Text]:
    yield Text("")
    for one in drawing.observations:
        yield Text.assemble((_OBSERVED, _BAND), " ", printable(one.sentence))
    said = {drawing.title, *(one.sentence for one in drawing.observations)}
    for sentence in (one for one in drawing.verdict if one not in said):
        yield Text(printable(f"• {sentence}"))
    signs = _signs(drawing, shown)
    if signs:
        yield Text("  ".join(signs), "dim")
    if left_out:
        names = ", ".join(printable(bars.heading) for bars in left_out)
        yield Text(f"Not shown, the terminal is too narrow: {names}.", "dim")
    for track in drawing.tracks:
        if not track.measured:
            how = f": {track.command}" if track.command else ""
            yield Text(printable(f"{track.name} is not measured yet{how}"))
    if drawing.footer:
        yield Text(printable(drawing.footer), "dim")


def _signs(drawing: Drawing, shown: Sequence[_Bars]) -> list[str]:
    """What the signs in place of bars mean, where there are any."""
    empty = [
        _sign(bars.track, n)
        for bars in shown
        for n, value in enumerate(bars.values)
        if value is None
    ]
    below = any(share is not None and share < 0 for bars in shown for share in bars.shares)
    return (
        [f"{_UNMEASURED} not measured"] * (_UNMEASURED in empty)
        + [f"{_UNTRAINED} not trained"] * (_UNTRAINED in empty)
        + [f"{_BELOW} below the zero of the bar"] * below
    )


def _word_width(drawing: Drawing) -> int:
    words = (printable(shown_word(word.text)) for word in drawing.words if word is not None)
    longest = max((cell_len(word) for word in words), default=0)
    return min(_MAX_WORD, max(_MIN_WORD, longest)) if longest else 0


def _cut(text: str, space: int) -> str:
    """The text in exactly `space` columns."""
    text = _one_line(text)
    return set_cell_size(
        text if cell_len(text) <= space else set_cell_size(text, space - 1) + "…", space
    )


def _end(drawing: Drawing) -> str:
    """The sentence; of a long one its end, which the next word follows, or both ends."""
    text = _one_line(drawing.sentence)
    if len(text) <= _SENTENCE or drawing.facts.get("kind") == "masked":
        return formats.shorten(text, _SENTENCE)
    return "…" + text[-_SENTENCE:]


def _one_line(text: str) -> str:
    return " ".join(text.split())
