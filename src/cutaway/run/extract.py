"""Activations of texts: one pass for everything asked, kept, and never computed twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.textset import TextSet
from cutaway.engine import find_engine
from cutaway.models.lm import LM
from cutaway.run.ask import Ask
from cutaway.run.batches import Budget
from cutaway.run.door import Door
from cutaway.run.estimate import refuse_when_full
from cutaway.run.feed import Fed, feed
from cutaway.run.reading import Range, read_elsewhere, read_rows
from cutaway.run.screen import Screen
from cutaway.run.sweep import Swept
from cutaway.run.visitors import Visitor
from cutaway.run.windows import need_combinable
from cutaway.store.activations import Shelf, open_shelf
from cutaway.store.cache import enforce

RAGGED = ("all", "marks")


@dataclass(frozen=True)
class Features:
    """Stored activations of a text set: read a column when it is needed, never all at once."""

    shelf: Shelf
    rows: int
    cut: NDArray[np.int64]
    """Tokens cut off, per text."""
    swept: Swept | None
    """What the pass cost; None when everything was in the cache."""

    def column(self, layer: int | str, pool: str = "last") -> Tensor:
        """The (n, d) states of one layer (or head) and pooler, in the order of the texts."""
        return self.shelf.read(f"{layer}/{pool}")

    def tokens(self, layer: int | str, pool: str = "all") -> tuple[Tensor, Tensor]:
        """All token vectors of a layer, (tokens, d), with the offsets of each text."""
        return self.shelf.read_ragged(f"{layer}/{pool}")

    @cached_property
    def shortened(self) -> int:
        """How many texts were cut."""
        return int((self.cut > 0).sum())


def extract(
    lm: LM,
    texts: TextSet,
    ask: Ask,
    *,
    screen: Screen | None = None,
    visitors: Sequence[Visitor] = (),
    budget: Budget | None = None,
    engine: str = "local",
    door: Door | None = None,
) -> Features:
    """Everything `ask` wants of these texts: from the cache where it is there, else computed.

    `visitors` watch the same pass (they see every text, so with visitors the pass always runs,
    and runs here). Other engines than `local` need the `door` by which workers open the model.
    """
    screen = screen or Screen(quiet=True)
    if ask.window:
        need_combinable(ask.pools)
    fed = feed(lm, texts, ask)
    shelf = open_shelf(ask.key(lm, texts), len(texts))
    there = shelf.columns()
    missing = {n: c for n, c in ask.columns().items() if n not in there}
    if not missing and not visitors:
        return Features(shelf, len(texts), fed.cut, None)
    refuse_when_full(lm, ask, len(texts), fed, len(missing), shelf.folder)
    if find_engine(engine).here or visitors or door is None:
        todo = _todo(shelf, list(missing), fed, everything=bool(visitors))
        swept = read_rows(
            lm, ask, Range(np.arange(len(texts)), fed), shelf, missing, todo=todo, screen=screen,
            visitors=visitors, budget=budget,
        )  # fmt: skip
    else:
        swept = read_elsewhere(engine, door, ask, fed, shelf, missing, screen)
    enforce()
    return Features(shelf, len(texts), fed.cut, swept)


def _todo(shelf: Shelf, missing: list[str], fed: Fed, *, everything: bool) -> NDArray[np.int64]:
    """The rows that still have to go through the model: a killed pass is taken up again."""
    if everything:
        return np.arange(len(fed.rows))
    covered = shelf.covered(missing)
    return np.flatnonzero(~covered[fed.owner])
