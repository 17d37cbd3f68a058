"""Pieces in this process, one after the other: torch already uses every core."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cutaway.engine.pieces import PieceOptions, PieceOutcome, PieceQueue, try_piece


def run_inline(
    function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions | None = None
) -> Iterator[tuple[Any, Any]]:
    """Each piece with its result; a piece that can't be done gives its failure, the rest go on.

    Ctrl-C and running out of memory are no fault of one piece: they end the run.
    """
    desk = PieceQueue(pieces, terms or PieceOptions())
    while (task := desk.take()) is not None:
        yield from desk.settle(task, _try_inline(function, task.piece))


def _try_inline(function: Callable[[Any], Any], piece: Any) -> PieceOutcome:
    short: list[MemoryError] = []

    def watched(piece: Any) -> Any:
        try:
            return function(piece)
        except MemoryError as error:
            short.append(error)
            raise

    outcome = try_piece(watched, piece)
    if short:
        raise short[0]
    return outcome
