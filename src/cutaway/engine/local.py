"""Run pieces in this process, one after the other: torch already uses every core."""

from typing import Any

from cutaway.engine.pieces import (
    PieceFunction,
    PieceOptions,
    PieceOutcome,
    PieceQueue,
    PieceResults,
    Pieces,
    try_piece,
)


def run_inline(
    function: PieceFunction, pieces: Pieces, options: PieceOptions | None = None
) -> PieceResults:
    """Each piece with its result; a piece that fails yields its failure and the rest continue.

    Ctrl-C and running out of memory end the whole run.
    """
    queue = PieceQueue(pieces, options or PieceOptions())
    while (task := queue.take()) is not None:
        yield from queue.settle(task, _try_inline(function, task.piece))


def _try_inline(function: PieceFunction, piece: Any) -> PieceOutcome:
    memory_errors: list[MemoryError] = []

    def watched(piece: Any) -> Any:
        try:
            return function(piece)
        except MemoryError as error:
            memory_errors.append(error)
            raise

    outcome = try_piece(watched, piece)
    if memory_errors:
        raise memory_errors[0]
    return outcome
