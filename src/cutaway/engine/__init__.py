"""Where many independent pieces run.

An engine takes idempotent pieces and a function, and gives results back as they finish. What
is done is known by the caller (the store), so an engine keeps no state of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from cutaway.core.lookup import lookup
from cutaway.engine.local import run_here

Piece = TypeVar("Piece")
Done = TypeVar("Done")

ENGINES: dict[str, Callable[..., Iterator[Any]]] = {"local": run_here}


def run_pieces(
    engine: str, function: Callable[[Piece], Done], pieces: Iterable[Piece]
) -> Iterator[tuple[Piece, Done | Exception]]:
    """Each piece with its result, or with the exception it raised, as they finish."""
    return lookup(ENGINES, engine, kind="engine")(function, pieces)
