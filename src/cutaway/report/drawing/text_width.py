"""Text of the drawing: cleaned, measured by estimate, wrapped and shortened."""

import unicodedata

from cutaway.console import printable

# Widths of Helvetica and fonts like it, in thousandths of the size.
_WIDTHS = {
    **dict.fromkeys("ijl'|", 222), **dict.fromkeys("It,.:;/\\!f ()[]`\u00a0", 278),
    **dict.fromkeys("r-“”", 333), **dict.fromkeys("ckszxvyJ", 500), **dict.fromkeys("FTZL", 611),
    **dict.fromkeys("EKPSVXYAB&", 667), **dict.fromkeys("CDHNRUw", 722),
    **dict.fromkeys("GOQ", 778), **dict.fromkeys("Mm", 833), "%": 889, "W": 944, "@": 1015,
    "…": 1000, "–": 556, "*": 389, '"': 355,
}  # fmt: skip
_USUAL, _CAPITAL, _WIDE, _EMOJI = 556, 667, 1000, 1250
_BOLD = 1.07
_MONOSPACED = 602
_JOINERS = "\u200c\u200d"
"""Persian words and composed emoji are made with these."""
_SYMBOLS = {"\n": "↵", "\r": "↵", "\t": "⇥"}


def clean(text: str) -> str:
    """The text with a visible symbol for all that XML forbids or that changes the direction."""
    return "".join(_clean(c) for c in text)


def _clean(character: str) -> str:
    if character in _JOINERS:
        return character
    if character in _SYMBOLS:
        return " "
    # Code points without a character; two of them are forbidden in XML.
    return "\ufffd" if unicodedata.category(character) == "Cn" else printable(character)


def shown_word(text: str) -> str:
    """A token as a word: without the space before it; line breaks and empty ones as symbols."""
    marked = "".join(_SYMBOLS.get(c, c) for c in text)
    return " ".join(clean(marked).split()) or "␣"


def is_right_to_left(text: str) -> bool:
    """Whether the first letter with a direction is written from right to left."""
    strong = (unicodedata.bidirectional(c) for c in text)
    return next((kind for kind in strong if kind in ("L", "R", "AL")), "L") != "L"


def width(text: str, size: float, *, bold: bool = False, monospaced: bool = False) -> float:
    """The estimated width of a text in pixels."""
    units = sum(_MONOSPACED if monospaced and c.isascii() else _units(c) for c in text)
    return units * size / 1000 * (_BOLD if bold else 1)


def _units(character: str) -> int:
    if character in _WIDTHS:
        return _WIDTHS[character]
    if character.isascii():
        return _CAPITAL if character.isupper() else _USUAL
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Cf"):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return _EMOJI if unicodedata.category(character) == "So" else _WIDE
    return 700


def fit(text: str, space: float, size: float, **style: bool) -> str:
    """The text, cut with an ellipsis where it is wider than the space."""
    if width(text, size, **style) <= space:
        return text
    while text and width(text + "…", size, **style) > space:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, space: float, size: float, most: int = 3, **style: bool) -> list[str]:
    """At most `most` lines that fit into the space; the last one is cut if there is more."""
    lines: list[str] = []
    words = text.replace(" %", "\u00a0%").replace("\n", " ").split(" ")
    rest = [piece for word in words if word for piece in _pieces(word, space, size, **style)]
    while rest and len(lines) < most - 1:
        count = 1
        while count < len(rest) and width(" ".join(rest[: count + 1]), size, **style) <= space:
            count += 1
        lines.append(" ".join(rest[:count]))
        rest = rest[count:]
    return [*lines, fit(" ".join(rest), space, size, **style)] if rest else lines


def _pieces(word: str, space: float, size: float, **style: bool) -> list[str]:
    """A word that is wider than a line, in parts that fit."""
    pieces = []
    while width(word, size, **style) > space and len(word) > 1:
        count = 1
        while count < len(word) - 1 and width(word[: count + 1], size, **style) <= space:
            count += 1
        pieces.append(word[:count])
        word = word[count:]
    return [*pieces, word]
