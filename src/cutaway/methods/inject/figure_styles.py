"""How trainings look in the figures of `inject`: a colour per regulariser, a shade per strength."""

from dataclasses import dataclass

import polars as pl

from cutaway.report import formats, theme

COLOURS = {
    "none": theme.NEUTRAL,
    "ewc": theme.PALETTE[0],
    "l2sp": theme.PALETTE[1],
    "kl": theme.PALETTE[2],
    "replay": theme.PALETTE[3],
}
# A strength has at least this share of its colour, the strongest all of it.
FAINTEST = 0.25
# Of bars: adapters are hatched, each rank its own way.
HATCHES = ("/", "\\", "x", "-", "|", "+", ".")


@dataclass(frozen=True)
class TrainingStyle:
    """One training's name, and how its lines, marks and bars are drawn."""

    name: str
    colour: str
    dash: str
    symbol: str
    hatch: str
    """The pattern of its bars; none for trained weights."""


def regulariser_colour(regulariser: str) -> str:
    """The same colour for a regulariser with and without adapters."""
    return COLOURS.get(regulariser.partition("+")[0], theme.PALETTE[4])


def lora_rank(regulariser: str) -> int:
    """The rank of a training's adapters, from its name; 0 where the weights are trained."""
    return int(regulariser.partition("+lora")[2] or 0)


def marker_symbol(regulariser: str, symbol: str) -> str:
    """The mark of a training: hollow marks are adapters."""
    return symbol + "-open" * bool(lora_rank(regulariser))


def training_styles(rows: pl.DataFrame) -> dict[tuple[str, float], TrainingStyle]:
    """The look of each regulariser and strength; told apart without colours too."""
    known = rows.drop_nulls("strength").select("regulariser", "strength").unique()
    ranks = sorted({r for n in known["regulariser"] if (r := lora_rank(n))})
    found: dict[tuple[str, float], TrainingStyle] = {}
    for (name,), cells in known.sort("regulariser", "strength").group_by(
        ["regulariser"], maintain_order=True
    ):
        for i, strength in enumerate(cells["strength"]):
            share = FAINTEST + (1 - FAINTEST) * (i + 1) / cells.height
            mark = marker_symbol(str(name), theme.SYMBOLS[i % len(theme.SYMBOLS)])
            low = lora_rank(str(name))
            found[str(name), strength] = TrainingStyle(
                formats.figure_label(
                    name if str(name).startswith("none") else f"{name} {strength:g}"
                ),
                mix_with_grey(regulariser_colour(str(name)), share),
                theme.DASHES[i % len(theme.DASHES)],
                mark,
                HATCHES[ranks.index(low) % len(HATCHES)] if low else "",
            )
    return found


def mix_with_grey(colour: str, share: float) -> str:
    """The colour with the rest of it grey, which reads on white and on near-black."""
    pairs = zip(_rgb(colour), _rgb(theme.NEUTRAL), strict=True)
    return "#" + "".join(f"{round(share * one + (1 - share) * two):02x}" for one, two in pairs)


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
