"""Colours of figures and drawings, light and dark, safe for colour-blind readers."""

from typing import Literal

ColourMode = Literal["light", "dark"]

# Okabe and Ito's palette, with lightness adjusted to be readable on white and on near-black.
PALETTE = (
    "#0d84c6",  # blue
    "#e08a00",  # orange
    "#009e73",  # green
    "#cc6fa5",  # pink
    "#d55e00",  # vermilion
    "#3fb3ea",  # sky
    "#8f7ae5",  # violet
    "#a3973b",  # olive
)
NEUTRAL = "#8a929e"

MODE_COLOURS: dict[ColourMode, dict[str, str]] = {
    "light": {
        "background": "#ffffff",
        "ink": "#1f2733",
        "soft": "#5b6675",
        "grid": "#e6e9ee",
        "line": "#c3cad4",
    },
    "dark": {
        "background": "#12161d",
        "ink": "#e6eaf0",
        "soft": "#9aa5b4",
        "grid": "#262d38",
        "line": "#3b4554",
    },
}
