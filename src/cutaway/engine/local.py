"""Pieces in this process, one after the other: torch already uses every core."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Piece = TypeVar("Piece")
Done = TypeVar("Done")


def run_here(
    function: Callable[[Piece], Done], pieces: Iterable[Piece]
) -> Iterator[tuple[Piece, Done | Exception]]:
    """Each piece with its result; a piece that raises gives its exception, the rest go on.

    Ctrl-C and running out of memory are no fault of one piece: they end the run.
    """
    for piece in pieces:
        try:
            yield piece, function(piece)
        except MemoryError:
            raise
        except Exception as error:
            yield piece, error
