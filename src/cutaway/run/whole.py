"""Which verbs are cut into pieces for `--engine`; with the others it is said, not passed over."""

from cutaway.engine import find_engine
from cutaway.run.screen import Screen

CUT: dict[str, str] = {
    "probe": "reading, cells of the grid",
    "nextword": "reading, feature kinds",
    "shortcut fit": "reading, cross-products",
    "shortcut eval": "reading",
    "shortcut exit": "reading",
    "graft learn": "masks: sparsities, seeds, other ways to choose",
    "graft continual": "the two ways",
    "inject": "cells of the sweep, Fishers",
    "fisher": "sums over the examples",
}
"""The verbs, and what of them is shared out."""


def tell_whole(verb: str, engine: str, screen: Screen) -> None:
    """One line when an engine was asked for and the verb has nothing for it."""
    if verb not in CUT and not find_engine(engine).here:
        screen.say(
            f"--engine {engine} changes nothing here: 'cutaway {verb}' is not cut into pieces, it "
            f"runs in this process. Cut up are: {', '.join(CUT)}."
        )
