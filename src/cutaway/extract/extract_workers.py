"""Rows go through the model and what was asked for goes on the shelf: here, or cut into ranges.

A range is some texts with their tokens. Each worker appends its own shards to the one shelf, and
looks there first: a range that is tried again computes only what isn't kept yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.engine import PieceFailed, find_engine, run_pieces
from cutaway.extract.model_handle import ModelHandle
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.sweep import PassStats, run_pass
from cutaway.extract.token_rows import TokenRows
from cutaway.extract.visitors import PoolingVisitor, Visitor
from cutaway.extract.windows import WindowCombiner
from cutaway.models.batches import Stopwatch, TokenBudget
from cutaway.models.lm import LM
from cutaway.store.activation_writer import ActivationWriter
from cutaway.store.activations import ActivationTable

Indices = NDArray[np.int64]
ColumnSources = Mapping[str, tuple[str, str]]

# Tokens of a range: several ranges for each worker, but none so small that starting it costs more
# than reading it, and none so large that losing it hurts.
MIN_RANGE_TOKENS, MAX_RANGE_TOKENS, RANGES_PER_WORKER = 8_192, 262_144, 4


@dataclass(frozen=True)
class TextRange:
    """Some texts: their numbers, and their rows of tokens, whose owners count within them."""

    texts: Indices
    fed: TokenRows

    @property
    def key(self) -> str:
        """One line of text."""
        return f"texts {self.texts[0]}..{self.texts[-1]}"


def extract_rows(
    lm: LM, ask: ExtractionRequest, part: TextRange, shelf: ActivationTable, columns: ColumnSources, *, todo: Indices,
    console: Console, visitors: Sequence[Visitor] = (), budget: TokenBudget | None = None,
) -> PassStats:  # fmt: skip
    """One pass over the rows `todo` of a range; its columns are on the shelf afterwards."""
    fed = part.fed
    with shelf.writer() as writer:
        dense = partial(_append, writer, part.texts)
        sink = WindowCombiner(fed, dense) if ask.window else dense
        ragged = partial(_append_ragged, writer, part.texts)
        pools = [PoolingVisitor(lm, ask, columns, sink, ragged)] if columns else []
        return run_pass(
            lm, fed, [*pools, *visitors], console=console, todo=todo, budget=budget,
            title=f"reading {lm.name}",
        )  # fmt: skip


def _append(
    writer: ActivationWriter, texts: Indices, rows: Indices, columns: Mapping[str, Tensor]
) -> None:  # fmt: skip
    writer.append(texts[rows], columns)


def _append_ragged(
    writer: ActivationWriter, texts: Indices, rows: Indices, lengths: list[int],
    columns: Mapping[str, Tensor],
) -> None:  # fmt: skip
    writer.append_ragged(texts[rows], lengths, columns)


@dataclass(frozen=True)
class ExtractWorker:
    """What a worker needs to read a range: the way to the model, and where the rows go."""

    door: ModelHandle
    ask: ExtractionRequest
    columns: ColumnSources
    shelf: ActivationTable

    def __call__(self, part: TextRange) -> PassStats:
        """The rows of the range that aren't kept yet go through the model."""
        kept = self.shelf.covered(self.columns)[part.texts]
        return extract_rows(
            self.door.open(), self.ask, part, self.shelf, self.columns,
            todo=np.flatnonzero(~kept[part.fed.text_index]), console=Console(quiet=True),
        )  # fmt: skip


def extract_on_workers(
    engine: str,
    door: ModelHandle,
    ask: ExtractionRequest,
    fed: TokenRows,
    shelf: ActivationTable,
    columns: ColumnSources,
    console: Console,
) -> PassStats:
    """All texts that lack a column, read by the engine's workers."""
    clock, reader = Stopwatch(), ExtractWorker(door, ask, dict(columns), shelf)
    lacking = np.flatnonzero(~shelf.covered(columns))
    ranges = list(split_ranges(fed, lacking, find_engine(engine).workers()))
    done: list[PassStats] = []
    with console.progress(f"reading {door.name}", len(lacking)) as advance:
        for part, got in run_pieces(
            engine,
            reader,
            ranges,
            key=lambda p: p.key,
            needs=door.resources(engine),
            notify=console.print,
        ):
            if isinstance(got, PieceFailed):
                got.add_note(f"{part.key}, tried {got.tries} times")
                raise got
            done.append(got)
            advance(len(part.texts))
    need_shared_store(shelf, columns)
    return PassStats(
        sum(s.rows for s in done), sum(s.tokens for s in done), sum(s.padded for s in done),
        clock.lap(), max((s.budget for s in done), default=0),
    )  # fmt: skip


def need_shared_store(shelf: ActivationTable, columns: ColumnSources) -> None:
    """Missing unless what the workers wrote can be seen here."""
    lacking = int((~shelf.covered(columns)).sum())
    if lacking:
        raise Missing(
            f"The workers are done, but {lacking} texts are not in {str(shelf.folder)!r}: they "
            "wrote to another disk. Set CUTAWAY_HOME to a folder or URL that every machine shares."
        )


def split_ranges(fed: TokenRows, texts: Indices, workers: int) -> Iterator[TextRange]:
    """The texts in ranges of about equal tokens, windows of one text together."""
    weight = np.bincount(fed.text_index, weights=fed.lengths, minlength=len(fed.truncated))[texts]
    size = int(
        np.clip(
            weight.sum() / (RANGES_PER_WORKER * max(workers, 1)), MIN_RANGE_TOKENS, MAX_RANGE_TOKENS
        )
    )
    # A range ends where the running count of tokens passes the next multiple of its size.
    place = (np.cumsum(weight) - weight) // size
    of_text = _rows_by_text(fed)
    for number in np.unique(place):
        yield select_range(fed, texts[place == number], of_text)


def _rows_by_text(fed: TokenRows) -> list[Indices]:
    """The rows of each text."""
    order = np.argsort(fed.text_index, kind="stable")
    ends = np.cumsum(np.bincount(fed.text_index, minlength=len(fed.truncated)))
    return np.split(order, ends[:-1])


def select_range(fed: TokenRows, texts: Indices, of_text: Sequence[Indices]) -> TextRange:
    """These texts alone."""
    counts = [len(of_text[i]) for i in texts]
    rows = np.concatenate([of_text[i] for i in texts])
    owner = np.repeat(np.arange(len(texts)), counts)
    return TextRange(
        texts,
        TokenRows(
            [fed.rows[i] for i in rows], owner, fed.first_counted[rows], [fed.marks[i] for i in rows],
            fed.truncated[texts],
        ),
    )  # fmt: skip
