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

from cutaway.core.errors import Missing
from cutaway.engine import Failed, find_engine, run_pieces
from cutaway.models.lm import LM
from cutaway.run.ask import Ask
from cutaway.run.batches import Budget, Stopwatch
from cutaway.run.door import Door
from cutaway.run.feed import Fed
from cutaway.run.screen import Screen
from cutaway.run.sweep import Swept, sweep
from cutaway.run.visitors import Pools, Visitor
from cutaway.run.windows import Windowed
from cutaway.store.activations import Shelf
from cutaway.store.writer import Writer

Numbers = NDArray[np.int64]
Columns = Mapping[str, tuple[str, str]]

# Tokens of a range: several ranges for each worker, but none so small that starting it costs more
# than reading it, and none so large that losing it hurts.
LEAST, MOST, EACH = 8_192, 262_144, 4


@dataclass(frozen=True)
class Range:
    """Some texts: their numbers, and their rows of tokens, whose owners count within them."""

    texts: Numbers
    fed: Fed

    @property
    def key(self) -> str:
        """One line of text."""
        return f"texts {self.texts[0]}..{self.texts[-1]}"


def read_rows(
    lm: LM, ask: Ask, part: Range, shelf: Shelf, columns: Columns, *, todo: Numbers,
    screen: Screen, visitors: Sequence[Visitor] = (), budget: Budget | None = None,
) -> Swept:  # fmt: skip
    """One pass over the rows `todo` of a range; its columns are on the shelf afterwards."""
    fed = part.fed
    with shelf.writer() as writer:
        dense = partial(_append, writer, part.texts)
        sink = Windowed(fed, dense) if ask.window else dense
        ragged = partial(_append_ragged, writer, part.texts)
        pools = [Pools(lm, ask, columns, sink, ragged)] if columns else []
        return sweep(
            lm, fed, [*pools, *visitors], screen=screen, todo=todo, budget=budget,
            title=f"reading {lm.name}",
        )  # fmt: skip


def _append(
    writer: Writer, texts: Numbers, rows: Numbers, columns: Mapping[str, Tensor]
) -> None:  # fmt: skip
    writer.append(texts[rows], columns)


def _append_ragged(
    writer: Writer, texts: Numbers, rows: Numbers, lengths: list[int],
    columns: Mapping[str, Tensor],
) -> None:  # fmt: skip
    writer.append_ragged(texts[rows], lengths, columns)


@dataclass(frozen=True)
class Reader:
    """What a worker needs to read a range: the way to the model, and where the rows go."""

    door: Door
    ask: Ask
    columns: Columns
    shelf: Shelf

    def __call__(self, part: Range) -> Swept:
        """The rows of the range that aren't kept yet go through the model."""
        kept = self.shelf.covered(self.columns)[part.texts]
        return read_rows(
            self.door.open(), self.ask, part, self.shelf, self.columns,
            todo=np.flatnonzero(~kept[part.fed.owner]), screen=Screen(quiet=True),
        )  # fmt: skip


def read_elsewhere(
    engine: str, door: Door, ask: Ask, fed: Fed, shelf: Shelf, columns: Columns, screen: Screen
) -> Swept:
    """All texts that lack a column, read by the engine's workers."""
    clock, reader = Stopwatch(), Reader(door, ask, dict(columns), shelf)
    lacking = np.flatnonzero(~shelf.covered(columns))
    ranges = list(cut(fed, lacking, find_engine(engine).workers()))
    done: list[Swept] = []
    with screen.progress(f"reading {door.name}", len(lacking)) as advance:
        for part, got in run_pieces(
            engine, reader, ranges, key=lambda p: p.key, needs=door.needs(engine), say=screen.say
        ):
            if isinstance(got, Failed):
                got.add_note(f"{part.key}, tried {got.tries} times")
                raise got
            done.append(got)
            advance(len(part.texts))
    need_shared(shelf, columns)
    return Swept(
        sum(s.rows for s in done), sum(s.tokens for s in done), sum(s.padded for s in done),
        clock.lap(), max((s.budget for s in done), default=0),
    )  # fmt: skip


def need_shared(shelf: Shelf, columns: Columns) -> None:
    """Missing unless what the workers wrote can be seen here."""
    lacking = int((~shelf.covered(columns)).sum())
    if lacking:
        raise Missing(
            f"The workers are done, but {lacking} texts are not in {str(shelf.folder)!r}: they "
            "wrote to another disk. Set CUTAWAY_HOME to a folder or URL that every machine shares."
        )


def cut(fed: Fed, texts: Numbers, workers: int) -> Iterator[Range]:
    """The texts in ranges of about equal tokens, windows of one text together."""
    weight = np.bincount(fed.owner, weights=fed.lengths, minlength=len(fed.cut))[texts]
    size = int(np.clip(weight.sum() / (EACH * max(workers, 1)), LEAST, MOST))
    # A range ends where the running count of tokens passes the next multiple of its size.
    place = (np.cumsum(weight) - weight) // size
    of_text = _rows_of(fed)
    for number in np.unique(place):
        yield take(fed, texts[place == number], of_text)


def _rows_of(fed: Fed) -> list[Numbers]:
    """The rows of each text."""
    order = np.argsort(fed.owner, kind="stable")
    ends = np.cumsum(np.bincount(fed.owner, minlength=len(fed.cut)))
    return np.split(order, ends[:-1])


def take(fed: Fed, texts: Numbers, of_text: Sequence[Numbers]) -> Range:
    """These texts alone."""
    counts = [len(of_text[i]) for i in texts]
    rows = np.concatenate([of_text[i] for i in texts])
    owner = np.repeat(np.arange(len(texts)), counts)
    return Range(
        texts,
        Fed(
            [fed.rows[i] for i in rows], owner, fed.fresh[rows], [fed.marks[i] for i in rows],
            fed.cut[texts],
        ),
    )  # fmt: skip
