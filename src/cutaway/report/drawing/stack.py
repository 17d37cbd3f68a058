"""The model as a stack of plates, its right half cut open: in the cut, the word of each layer."""

import re

from cutaway.report import formats
from cutaway.report.drawing import marks
from cutaway.report.drawing.geometry import STACK_WIDTH, Place, Rows
from cutaway.report.drawing.marks import Paths
from cutaway.report.drawing.palette import LEVELS
from cutaway.report.drawing.text_width import clean, fit, shown_word, wrap
from cutaway.report.drawing.values import Drawing, LayerWord

_GUTTER, _RIGHT = 28, STACK_WIDTH - 34
_FRONT, _LIFT, _CUT, _SLANT = 0.60, 0.26, 0.36, 4
_MASK = re.compile(r"[\[<]?mask[\]>]?", re.IGNORECASE)
_EVERY_WORD = 14.0
"""In lower rows a word is shown where it changes, and every fifth layer after that."""


def draw_stack(drawing: Drawing, place: Place) -> str:
    """Plates, layer numbers and words."""
    rows = place.rows
    faces = (f"{kind}{n} edge" for kind in "of" for n in range(LEVELS))
    paths = Paths("shell edge", "lid edge", "base edge", "blid edge", *faces, "lit", "dim")
    words = ""
    shown = _shown_words(drawing, rows)
    for n in place.layers:
        word = drawing.words[n] if n < len(drawing.words) else None
        _plate(paths, rows, n, word)
        if word is not None and n in shown:
            words += _word(word, rows, n)
    numbers = (
        marks.text("num", _GUTTER - 9, rows.middle(n) + 4, str(n), anchor="end")
        for n in rows.numbered()
    )
    fine = "fine" if rows.height < _EVERY_WORD else "plates"
    return f'<g class="{fine}">{paths.svg()}</g>{words}' + "".join(numbers)


def _plate(paths: Paths, rows: Rows, layer: int, word: LayerWord | None) -> None:
    """The front and the upper side of the shell, and those of the cut."""
    top, foot, lift = _front(rows, layer)
    deep = min(12.0, rows.height * 0.45)
    cut = _GUTTER + _CUT * (_RIGHT - _GUTTER)
    front, lid = ("shell", "lid") if layer else ("base", "blid")
    upper = cut + _SLANT
    paths.add(
        f"{front} edge", marks.polygon([(_GUTTER, foot), (cut, foot), (upper, top), (_GUTTER, top)])
    )
    paths.add(
        f"{lid} edge",
        marks.polygon(
            [(_GUTTER, top), (upper, top), (upper + deep, top - lift), (_GUTTER + deep, top - lift)]
        ),
    )
    face = _face(word)
    cut_front = [(cut, foot), (_RIGHT, foot), (_RIGHT, top), (upper, top)]
    cut_lid = [(upper, top), (_RIGHT, top), (_RIGHT + deep, top - lift), (upper + deep, top - lift)]
    side = [
        (_RIGHT, foot),
        (_RIGHT + deep, foot - lift),
        (_RIGHT + deep, top - lift),
        (_RIGHT, top),
    ]
    for name, shape in (("", cut_front), (" lit", cut_lid), (" dim", side)):
        paths.add(f"{face} edge", marks.polygon(shape))
        if name:
            paths.add(name.strip(), marks.polygon(shape))


def _front(rows: Rows, layer: int) -> tuple[float, float, float]:
    """The upper and lower edge of a plate's front, and how far its upper side rises."""
    lift = _LIFT * rows.height
    top = rows.middle(layer) - (_FRONT * rows.height - lift) / 2
    return top, top + _FRONT * rows.height, lift


def _face(word: LayerWord | None) -> str:
    """The class of the cut: by whether the word is the final one, and by its probability."""
    if word is None:
        return "o0"
    share = min(1.0, max(0.0, word.probability)) if word.probability == word.probability else 0.0
    return f"{'f' if word.final else 'o'}{min(LEVELS - 1, int(share * LEVELS))}"


def _word(word: LayerWord, rows: Rows, layer: int) -> str:
    size = min(14.0, max(8.5, 0.57 * rows.height))
    top, foot, _ = _front(rows, layer)
    left = _GUTTER + _CUT * (_RIGHT - _GUTTER) + _SLANT
    content = fit(shown_word(word.text), _RIGHT - left - 10, size, bold=word.final)
    middle = (top + foot) / 2 + 0.355 * size
    name = "wrf" if word.final else "wrd"
    return marks.text(name, (left + _RIGHT) / 2, middle, content, anchor="middle", size=size)


def _shown_words(drawing: Drawing, rows: Rows) -> set[int]:
    """The layers whose word is written: all, or where it changes and every fifth after that."""
    if rows.height >= _EVERY_WORD:
        return set(range(rows.count))
    shown, start, before = set(), 0, None
    for n, word in enumerate(drawing.words[: rows.count]):
        text = None if word is None else word.text
        if text != before or n == 0:
            start, before = n, text
        if (n - start) % 5 == 0:
            shown.add(n)
    return shown


def has_words(drawing: Drawing) -> bool:
    """Whether any layer predicts a word; a model without a head has none."""
    return any(word is not None for word in drawing.words)


def stack_header(drawing: Drawing) -> tuple[str, str]:
    """The question and the sentence above the stack."""
    blocks = "block" if drawing.blocks == 1 else "blocks"
    facts = drawing.facts
    parameters = facts.get("parameters")
    size = f"{formats.count(parameters)} parameters. " if isinstance(parameters, int) else ""
    if not has_words(drawing):
        what = "Layer 0 is the embeddings."
    elif facts.get("kind") == "masked":
        what = "In the cut: the word each layer puts in place of the mask."
    else:
        what = "In the cut: the word each layer would say next."
    return f"{drawing.blocks} {blocks}, cut open", size + what


def shown_sentence(drawing: Drawing, space: float, size: float) -> list[str]:
    """The sentence in two lines; of a long one its end, or what is around the mask."""
    masked = drawing.facts.get("kind") == "masked"
    ending = "" if masked else " …"
    text = clean(drawing.sentence) if has_words(drawing) else ""
    found = _MASK.search(text) if masked else None
    start = max(0, found.start() - 24) if found else 0
    whole = wrap(f"“{text}{ending}”", space, size, 3, bold=True)
    if not text or len(whole) <= 2:
        return whole if text else []
    if found:
        return wrap(f"“{'…' if start else ''}{text[start:]}”", space, size, 2, bold=True)
    lengths = range(min(len(text) - 1, 80), 0, -1)
    ends = (wrap(f"“…{text[-n:]}{ending}”", space, size, 3, bold=True) for n in lengths)
    return next((lines for lines in ends if len(lines) <= 2), [])
