"""Activations of texts: one forward pass for everything requested, cached on disk.

The pass runs here or on an engine's workers. Workers get ranges of texts; each appends its own
shards to the one table and first looks which of its rows are there already, so a range that is
tried again computes only what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.core.names import short_name
from cutaway.core.textset import TextSet
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.estimate import disk_bytes
from cutaway.extract.forward_pass import (
    PassStats,
    PoolingVisitor,
    RowSink,
    Visitor,
    WindowCombiner,
    need_window_poolers,
    run_pass,
)
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.request import ExtractionRequest, TokenRows, build_token_rows
from cutaway.models.batches import Stopwatch, TokenBudget
from cutaway.models.lm import LM
from cutaway.store.activations import ActivationTable, open_activations
from cutaway.store.cache import enforce_limit
from cutaway.store.files import check_free_space

Indices = NDArray[np.int64]
ColumnSources = Mapping[str, tuple[str, str]]

# Several ranges for each worker, none so small that starting it costs more than reading it, none so
# large that repeating it after a failure takes long.
MIN_RANGE_TOKENS, MAX_RANGE_TOKENS, RANGES_PER_WORKER = 8_192, 262_144, 4


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


@dataclass(frozen=True)
class TextRange:
    """Some texts: their numbers, and their token rows, whose `text_index` counts within them."""

    texts: Indices
    token_rows: TokenRows

    @property
    def key(self) -> str:
        """The range as one line of text."""
        return f"texts {self.texts[0]}..{self.texts[-1]}"


def extract_rows(
    lm: LM, request: ExtractionRequest, part: TextRange, table: ActivationTable,
    columns: ColumnSources, *, todo: Indices, console: Console,
    visitors: Sequence[Visitor] = (), budget: TokenBudget | None = None,
) -> PassStats:  # fmt: skip
    """One pass over the rows `todo` of a range; the table has their columns afterwards."""
    with table.writer() as writer:
        sink: RowSink = lambda rows, values: writer.append(part.texts[rows], values)  # noqa: E731
        if request.window:
            sink = WindowCombiner(part.token_rows, sink)
        all_visitors = list(visitors)
        if columns:
            pooling = PoolingVisitor(
                lm, request, columns, sink,
                lambda rows, lengths, values: writer.append_ragged(
                    part.texts[rows], lengths, values
                ),
            )  # fmt: skip
            all_visitors.insert(0, pooling)
        return run_pass(
            lm, part.token_rows, all_visitors, console=console, todo=todo, budget=budget,
            title=f"reading {short_name(lm.name)}",
        )  # fmt: skip


@dataclass(frozen=True)
class ExtractWorker:
    """What a worker needs to read a range: the model's handle, and where the rows go."""

    handle: ModelHandle
    request: ExtractionRequest
    columns: ColumnSources
    table: ActivationTable

    def __call__(self, part: TextRange) -> PassStats:
        """Read the rows of the range that aren't stored yet."""
        stored = self.table.covered(self.columns)[part.texts]
        return extract_rows(
            self.handle.open(), self.request, part, self.table, self.columns,
            todo=np.flatnonzero(~stored[part.token_rows.text_index]), console=Console(quiet=True),
        )  # fmt: skip


def extract_on_workers(
    engine: str, handle: ModelHandle, request: ExtractionRequest, token_rows: TokenRows,
    table: ActivationTable, columns: ColumnSources, console: Console,
) -> PassStats:  # fmt: skip
    """Read all texts that lack a column on the engine's workers."""
    clock, worker = Stopwatch(), ExtractWorker(handle, request, dict(columns), table)
    missing = np.flatnonzero(~table.covered(columns))
    ranges = list(split_ranges(token_rows, missing, find_engine(engine).workers()))
    done: list[PassStats] = []
    with console.progress(f"reading {short_name(handle.name)}", len(missing)) as advance:
        for part, result in run_pieces(
            engine, worker, ranges, key=lambda part: part.key, needs=handle.resources(engine),
            notify=console.print,
        ):  # fmt: skip
            if isinstance(result, PieceFailed):
                result.add_note(f"{part.key}, tried {result.tries} times")
                raise result
            done.append(result)
            advance(len(part.texts))
    need_shared_store(table, columns)
    return PassStats(
        sum(s.rows for s in done), sum(s.tokens for s in done), sum(s.padded for s in done),
        clock.lap(), max((s.budget for s in done), default=0),
    )  # fmt: skip


def need_shared_store(table: ActivationTable, columns: ColumnSources) -> None:
    """Missing unless this process can see what the workers wrote."""
    missing = int((~table.covered(columns)).sum())
    if missing:
        raise Missing(
            f"The workers are done, but {missing} texts are not in {str(table.folder)!r}: they "
            "wrote to another disk. Set CUTAWAY_HOME to a folder or URL that every machine shares."
        )


def split_ranges(token_rows: TokenRows, texts: Indices, workers: int) -> Iterator[TextRange]:
    """The texts in ranges of about equal tokens; windows of one text stay together."""
    count = len(token_rows.truncated)
    tokens = np.bincount(token_rows.text_index, weights=token_rows.lengths, minlength=count)[texts]
    size = tokens.sum() / (RANGES_PER_WORKER * max(workers, 1))
    size = int(np.clip(size, MIN_RANGE_TOKENS, MAX_RANGE_TOKENS))
    # A range ends where the running count of tokens passes the next multiple of its size.
    range_of_text = (np.cumsum(tokens) - tokens) // size
    order = np.argsort(token_rows.text_index, kind="stable")
    ends = np.cumsum(np.bincount(token_rows.text_index, minlength=count))
    rows_of_text = np.split(order, ends[:-1])
    for number in np.unique(range_of_text):
        chosen = texts[range_of_text == number]
        yield TextRange(chosen, token_rows.select([rows_of_text[i] for i in chosen], chosen))
