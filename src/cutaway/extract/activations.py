"""Activations of texts: one forward pass for everything requested, cached on disk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.engine import find_engine
from cutaway.extract.estimate import disk_bytes
from cutaway.extract.forward_pass import PassStats
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.token_rows import build_token_rows
from cutaway.extract.visitors import Visitor
from cutaway.extract.windows import need_window_poolers
from cutaway.extract.workers import TextRange, extract_on_workers, extract_rows
from cutaway.models.batches import TokenBudget
from cutaway.models.lm import LM
from cutaway.store.activations import ActivationTable, open_activations
from cutaway.store.cache import enforce_limit
from cutaway.store.files import check_free_space


@dataclass(frozen=True)
class StoredActivations:
    """Stored activations of a text set; a column is read from disk when it is needed."""

    table: ActivationTable
    rows: int
    truncated: NDArray[np.int64]
    """Tokens cut off, per text."""
    stats: PassStats | None
    """The cost of the pass; None when everything was in the cache."""

    def column(self, layer: int | str, pool: str = "last") -> Tensor:
        """The (n, d) states of one layer (or head) and pooler, in the order of the texts."""
        return self.table.read(f"{layer}/{pool}")

    def tokens(self, layer: int | str, pool: str = "all") -> tuple[Tensor, Tensor]:
        """All token vectors of a layer, (tokens, d), with the offsets of each text."""
        return self.table.read_ragged(f"{layer}/{pool}")

    @property
    def num_truncated(self) -> int:
        """How many texts were truncated."""
        return int((self.truncated > 0).sum())


def extract(
    lm: LM,
    texts: TextSet,
    request: ExtractionRequest,
    *,
    console: Console | None = None,
    visitors: Sequence[Visitor] = (),
    budget: TokenBudget | None = None,
    engine: str = "local",
    handle: ModelHandle | None = None,
) -> StoredActivations:
    """Everything requested of these texts: from the cache if it is there, else computed.

    `visitors` see the layers in the same pass; with visitors the pass always runs over every text,
    in this process. An engine other than `local` needs the `handle` by which workers open the
    model.
    """
    console = console or Console(quiet=True)
    if request.window:
        need_window_poolers(request.pools)
    token_rows = build_token_rows(lm, texts, request)
    table = open_activations(request.key(lm, texts), len(texts))
    missing = request.missing_columns(table)
    if not missing and not visitors:
        return StoredActivations(table, len(texts), token_rows.truncated, None)
    check_free_space(table.folder, disk_bytes(lm, request, len(texts), token_rows, len(missing)))
    if find_engine(engine).in_process or visitors or handle is None:
        todo = np.arange(len(token_rows.rows))
        if not visitors:
            todo = np.flatnonzero(~table.covered(list(missing))[token_rows.text_index])
        part = TextRange(np.arange(len(texts)), token_rows)
        stats = extract_rows(
            lm, request, part, table, missing, todo=todo, console=console, visitors=visitors,
            budget=budget,
        )  # fmt: skip
    else:
        stats = extract_on_workers(engine, handle, request, token_rows, table, missing, console)
    enforce_limit()
    return StoredActivations(table, len(texts), token_rows.truncated, stats)
