"""The colours of the drawing, light and dark, as rules of a style sheet.

Rules hold the colours themselves, not custom properties, which Inkscape and librsvg don't know.
"""

from collections.abc import Iterator
from typing import Literal

from cutaway.report.colours import MODE_COLOURS, NEUTRAL, PALETTE, ColourMode

HUES: dict[str, str] = {
    **dict(
        zip(
            ("blue", "orange", "green", "pink", "vermilion", "sky", "violet", "olive"),
            PALETTE,
            strict=True,
        )
    ),
    "slate": "#5b7a99",
    "navy": "#3d6f9d",
    "grey": NEUTRAL,
}
MIN_CONTRAST = 4.6
LEVELS = 5
"""Steps of probability in the colour of a word's plate, and of the score in a heat strip."""

# Per mode: the first and the last step.
_RAMPS: dict[ColourMode, dict[str, tuple[str, str]]] = {
    "light": {
        "final": ("#f8d9a4", "#f0a530"),
        "other": ("#f3efe6", "#cfd3d9"),
        "heat": ("#e3eef7", "#0b6aa3"),
    },
    "dark": {
        "final": ("#b98533", "#f0a530"),
        "other": ("#2a313b", "#47505c"),
        "heat": ("#1d3142", "#4db4f0"),
    },
}
_FIXED: dict[ColourMode, dict[str, str]] = {
    "light": {
        "band": "#fff3d6", "ghost": "#eef0f3", "shell": "#21476b", "lid": "#3d6f9d",
        "edge": "#17344f", "base": "#66717f", "base-lid": "#97a1ad", "word": "#3b4552",
        "final-word": "#3a2500", "mask": "#ffffff",
    },
    "dark": {
        "band": "#32290f", "ghost": "#1d242e", "shell": "#2b5c89", "lid": "#4a86ba",
        "edge": "#0b1017", "base": "#5a6675", "base-lid": "#7b8796", "word": "#e6eaf0",
        "final-word": "#2a1a00", "mask": "#12161d",
    },
}  # fmt: skip

Property = Literal["fill", "stroke"]

# Class of a text -> its colour, and the colours it is drawn on. `hue` is that of the column.
TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ttl": ("ink", ("background",)),
    "fnd": ("ink", ("background",)),
    "qst": ("ink", ("background",)),
    "say": ("soft", ("background",)),
    "mth": ("hue", ("background",)),
    "lbl": ("hue", ("background",)),
    "snt": ("orange-text", ("background",)),
    "key": ("soft", ("background",)),
    "tck": ("soft", ("background",)),
    "num": ("soft", ("background", "band")),
    "wrd": ("word", tuple(f"other{n}" for n in range(LEVELS))),
    "wrf": ("final-word", tuple(f"final{n}" for n in range(LEVELS))),
    "unt": ("ghost-text", ("ghost",)),
    "nym": ("soft", ("background", "band")),
    "cmd": ("soft", ("background", "band")),
    "obs": ("ink", ("background",)),
}

# Class of a mark -> its property and colour.
_MARKS: dict[str, tuple[Property, str]] = {
    "paper": ("fill", "background"), "grid": ("stroke", "grid"), "axis": ("stroke", "line"),
    "band": ("fill", "band"), "ghost": ("fill", "ghost"), "shell": ("fill", "shell"),
    "lid": ("fill", "lid"), "base": ("fill", "base"), "blid": ("fill", "base-lid"),
    "edge": ("stroke", "edge"), "tick": ("stroke", "ink"), "none": ("stroke", "soft"),
    "dotted": ("stroke", "soft"), "split": ("stroke", "background"), "lens": ("fill", "lens"),
    "mlp": ("fill", "mlp"), "attention": ("fill", "attention"), "norm": ("fill", "norm"),
    "other": ("fill", "other"), "text": ("fill", "grey"), "below": ("fill", "grey"),
    **{f"f{n}": ("fill", f"final{n}") for n in range(LEVELS)},
    **{f"o{n}": ("fill", f"other{n}") for n in range(LEVELS)},
    **{f"h{n}": ("fill", f"heat{n}") for n in range(LEVELS)},
}  # fmt: skip


def colours(mode: ColourMode) -> dict[str, str]:
    """Every colour of a mode by name; `blue-text` is a blue that can be read on the background."""
    base = {**MODE_COLOURS[mode], **_FIXED[mode], **HUES}
    ink, paper, band = base["ink"], base["background"], base["band"]
    ramps = {
        f"{name}{n}": mix(first, last, n / (LEVELS - 1))
        for name, (first, last) in _RAMPS[mode].items()
        for n in range(LEVELS)
    }
    texts = {f"{hue}-text": readable(colour, (paper, band), ink) for hue, colour in HUES.items()}
    return {
        **base,
        **ramps,
        **texts,
        "ghost-text": readable(base["soft"], (base["ghost"],), ink),
        "soft": readable(base["soft"], (paper, band), ink),
        "lens": mix(HUES["violet"], ink, 0.62),
        "mlp": HUES["orange"],
        "attention": mix(HUES["orange"], "#ffffff", 0.45),
        "norm": mix(HUES["orange"], "#000000", 0.42) if mode == "light" else "#a96f14",
        "other": NEUTRAL,
    }


def colour_rules(mode: ColourMode, scope: str = ".cutaway-drawing") -> str:
    """The rules of a mode: the colour of every class within `scope`."""
    of = colours(mode)
    rules = [f"{scope} .{name}{{{key}:{of[colour]}}}" for name, (key, colour) in _MARKS.items()]
    rules += [f"{scope} .{name}{{fill:{of[c]}}}" for name, (c, _) in TEXTS.items() if c != "hue"]
    return "".join([*rules, *_hue_rules(of, scope)])


def _hue_rules(of: dict[str, str], scope: str) -> Iterator[str]:
    texts = [name for name, (colour, _) in TEXTS.items() if colour == "hue"]
    for hue in HUES:
        text = ",".join(f"{scope} .{hue} .{name}" for name in texts)
        yield f"{text}{{fill:{of[f'{hue}-text']}}}"
        yield f"{scope} .{hue} .hue{{fill:{of[hue]}}}{scope} .{hue} .ray{{stroke:{of[hue]}}}"


def mix(one: str, other: str, share: float) -> str:
    """`share` of the way from one colour to the other."""
    mixed = (p + (q - p) * share for p, q in zip(_channels(one), _channels(other), strict=True))
    return "#" + "".join(f"{round(255 * value):02x}" for value in mixed)


def readable(colour: str, backgrounds: tuple[str, ...], ink: str) -> str:
    """The colour, moved towards the ink until it can be read on all backgrounds."""
    steps = (mix(colour, ink, n / 20) for n in range(21))
    return next((c for c in steps if min(contrast(c, b) for b in backgrounds) >= MIN_CONTRAST), ink)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG defines it, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)
    )
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    return red, green, blue
