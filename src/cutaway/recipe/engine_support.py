"""Which verbs are cut into pieces for `--engine`; with the others it is said, not passed over."""

from cutaway.console import Console
from cutaway.engine import find_engine

PARALLEL_VERBS: dict[str, str] = {
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


def warn_if_not_parallel(verb: str, engine: str, console: Console) -> None:
    """One line when an engine was asked for and the verb has nothing for it."""
    if verb not in PARALLEL_VERBS and not find_engine(engine).here:
        console.print(
            f"--engine {engine} changes nothing here: 'cutaway {verb}' is not cut into pieces, it "
            f"runs in this process. Cut up are: {', '.join(PARALLEL_VERBS)}."
        )
