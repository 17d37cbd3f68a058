"""Activations of texts: one pass for everything asked, kept, and never computed twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.engine import find_engine
from cutaway.extract.estimate import need_disk_space
from cutaway.extract.extract_workers import TextRange, extract_on_workers, extract_rows
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.sweep import PassStats
from cutaway.extract.token_rows import TokenRows, build_token_rows
from cutaway.extract.visitors import Visitor
from cutaway.extract.windows import need_window_poolers
from cutaway.models.batches import TokenBudget
from cutaway.models.lm import LM
from cutaway.store.activations import ActivationTable, open_activations
from cutaway.store.cache import enforce_limit

RAGGED = ("all", "marks")


@dataclass(frozen=True)
class StoredActivations:
    """Stored activations of a text set: read a column when it is needed, never all at once."""

    shelf: ActivationTable
    rows: int
    truncated: NDArray[np.int64]
    """Tokens cut off, per text."""
    stats: PassStats | None
    """What the pass cost; None when everything was in the cache."""

    def column(self, layer: int | str, pool: str = "last") -> Tensor:
        """The (n, d) states of one layer (or head) and pooler, in the order of the texts."""
        return self.shelf.read(f"{layer}/{pool}")

    def tokens(self, layer: int | str, pool: str = "all") -> tuple[Tensor, Tensor]:
        """All token vectors of a layer, (tokens, d), with the offsets of each text."""
        return self.shelf.read_ragged(f"{layer}/{pool}")

    @cached_property
    def num_truncated(self) -> int:
        """How many texts were cut."""
        return int((self.truncated > 0).sum())


def extract(
    lm: LM,
    texts: TextSet,
    ask: ExtractionRequest,
    *,
    console: Console | None = None,
    visitors: Sequence[Visitor] = (),
    budget: TokenBudget | None = None,
    engine: str = "local",
    door: ModelHandle | None = None,
) -> StoredActivations:
    """Everything `ask` wants of these texts: from the cache where it is there, else computed.

    `visitors` watch the same pass (they see every text, so with visitors the pass always runs,
    and runs here). Other engines than `local` need the `door` by which workers open the model.
    """
    console = console or Console(quiet=True)
    if ask.window:
        need_window_poolers(ask.pools)
    fed = build_token_rows(lm, texts, ask)
    shelf = open_activations(ask.key(lm, texts), len(texts))
    there = shelf.columns()
    missing = {n: c for n, c in ask.columns().items() if n not in there}
    if not missing and not visitors:
        return StoredActivations(shelf, len(texts), fed.truncated, None)
    need_disk_space(lm, ask, len(texts), fed, len(missing), shelf.folder)
    if find_engine(engine).in_process or visitors or door is None:
        todo = _rows_to_read(shelf, list(missing), fed, everything=bool(visitors))
        swept = extract_rows(
            lm, ask, TextRange(np.arange(len(texts)), fed), shelf, missing, todo=todo, console=console,
            visitors=visitors, budget=budget,
        )  # fmt: skip
    else:
        swept = extract_on_workers(engine, door, ask, fed, shelf, missing, console)
    enforce_limit()
    return StoredActivations(shelf, len(texts), fed.truncated, swept)


def _rows_to_read(
    shelf: ActivationTable, missing: list[str], fed: TokenRows, *, everything: bool
) -> NDArray[np.int64]:
    """The rows that still have to go through the model: a killed pass is taken up again."""
    if everything:
        return np.arange(len(fed.rows))
    covered = shelf.covered(missing)
    return np.flatnonzero(~covered[fed.text_index])
