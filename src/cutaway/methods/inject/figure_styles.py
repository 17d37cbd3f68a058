"""Names, colours, symbols and patterns of trainings in the figures of `inject`."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from cutaway.report import formats, theme

COLOURS = {
    "none": theme.NEUTRAL,
    "ewc": theme.PALETTE[0],
    "l2sp": theme.PALETTE[1],
    "kl": theme.PALETTE[2],
    "replay": theme.PALETTE[3],
}
# The weakest strength has at least this share of its colour, the strongest all of it.
FAINTEST = 0.25
# Bars of adapters are hatched, each rank with another pattern.
HATCHES = ("/", "\\", "x", "-", "|", "+", ".")


@dataclass(frozen=True)
class TrainingStyle:
    """A training's label, and how its lines, markers and bars are drawn."""

    name: str
    colour: str
    dash: str
    symbol: str
    hatch: str
    """The pattern of its bars; empty where the weights themselves are trained."""


def regulariser_colour(regulariser: str) -> str:
    """The colour of a regulariser, the same with and without adapters."""
    return COLOURS.get(regulariser.partition("+")[0], theme.PALETTE[4])


def lora_rank(regulariser: str) -> int:
    """The rank in a label such as `ewc+lora8`; 0 where the weights themselves are trained."""
    return int(regulariser.partition("+lora")[2] or 0)


def marker_symbol(regulariser: str, symbol: str) -> str:
    """The symbol of a training; hollow for adapters."""
    return symbol + "-open" * bool(lora_rank(regulariser))


def training_styles(rows: pl.DataFrame) -> dict[tuple[str, float], TrainingStyle]:
    """The style of each regulariser and strength, distinct without colours too."""
    known = rows.drop_nulls("strength").select("regulariser", "strength").unique()
    ranks = sorted({rank for name in known["regulariser"] if (rank := lora_rank(name))})
    styles: dict[tuple[str, float], TrainingStyle] = {}
    for (key,), cells in known.sort("regulariser", "strength").group_by(
        ["regulariser"], maintain_order=True
    ):
        name = str(key)
        rank = lora_rank(name)
        for i, strength in enumerate(cells["strength"]):
            share = FAINTEST + (1 - FAINTEST) * (i + 1) / cells.height
            label = name if name.startswith("none") else f"{name} {strength:g}"
            styles[name, strength] = TrainingStyle(
                formats.figure_label(label),
                mix_with_grey(regulariser_colour(name), share),
                theme.DASHES[i % len(theme.DASHES)],
                marker_symbol(name, theme.SYMBOLS[i % len(theme.SYMBOLS)]),
                HATCHES[ranks.index(rank) % len(HATCHES)] if rank else "",
            )
    return styles


def mix_with_grey(colour: str, share: float) -> str:
    """The colour mixed with grey, readable on white and on near-black."""
    pairs = zip(_rgb(colour), _rgb(theme.NEUTRAL), strict=True)
    return "#" + "".join(f"{round(share * one + (1 - share) * two):02x}" for one, two in pairs)


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def error_bars(cells: pl.DataFrame, name: str = "value") -> dict[str, Any]:
    """Error bars of a column from its `low` to its `high`; none where a row has no interval."""
    low, high = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    above, below = cells[high] - cells[name], cells[name] - cells[low]
    sides = {"array": above.fill_null(0.0).to_list(), "arrayminus": below.fill_null(0.0).to_list()}
    return {**sides, "thickness": 1}
