"""Where many independent pieces run: here, in several processes, or on a Ray cluster.

An engine takes idempotent pieces and a function, and gives results back as they finish. What
is done is known by the caller (the store), so an engine keeps no state of its own.

    local              in this process, one after the other
    local:4            four processes, each with a quarter of the cores
    ray                a Ray of our own on this machine
    ray://host:10001   an existing cluster, from outside
    host:6379, auto    an existing cluster, from one of its machines

A piece that raises, or takes its worker with it, is tried three times; then it comes back as
`Failed`, with its key and the reason. Leaving the loop cancels the rest.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.engine import cluster, pool
from cutaway.engine.local import run_inline
from cutaway.engine.pieces import MAX_TRIES, PieceFailed, PieceOptions, Resources

__all__ = ["ENGINES", "PieceFailed", "Resources", "find_engine", "run_pieces"]

POSITIVE_INTEGER = re.compile(r"0*[1-9][0-9]{0,3}")
Piece = TypeVar("Piece")
PieceResult = TypeVar("PieceResult")


@dataclass(frozen=True)
class Engine(ABC):
    """A way to run pieces; `where` is what stands behind its name (a number, an address)."""

    where: str | None = None

    @property
    def here(self) -> bool:
        """Whether pieces share this process: nothing has to be sent."""
        return False

    @abstractmethod
    def run(
        self, function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions
    ) -> Iterator[tuple[Any, Any]]:
        """Each piece with its result, or with its failure."""

    @abstractmethod
    def check(self) -> None:
        """Everything that can be wrong with the request is said before the work starts."""

    def workers(self) -> int:
        """How many pieces of one core run at once."""
        return 1

    def gpus(self) -> float:
        """How many GPUs pieces can ask for; an engine on this machine shares what is there."""
        return 0


class LocalEngine(Engine):
    """In this process, or in a number of processes."""

    @property
    def here(self) -> bool:
        """Without a number, everything stays in this process."""
        return self.where is None

    def check(self) -> None:
        """BadSpec unless the number is one."""
        if self.where is not None and not POSITIVE_INTEGER.fullmatch(self.where):
            raise BadSpec(f"engine local:N needs a number of processes >= 1, got {self.where!r}.")

    def workers(self) -> int:
        """The number of processes."""
        return 1 if self.where is None else int(self.where)

    def run(
        self, function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions
    ) -> Iterator[tuple[Any, Any]]:
        """One after the other, or in so many processes."""
        if self.where is None:
            return run_inline(function, pieces, terms)
        return pool.run_pool(int(self.where), function, pieces, terms)


class RayEngine(Engine):
    """On a Ray cluster: one of our own, or the one at an address."""

    def check(self) -> None:
        """Missing unless Ray is installed and the cluster is there."""
        cluster.connect(self.where)

    def workers(self) -> int:
        """The CPUs of the cluster, as it is now."""
        return max(1, int(cluster.capacity(self.where)["cpus"]))

    def gpus(self) -> float:
        """The GPUs of the cluster, as it is now."""
        return cluster.capacity(self.where)["gpus"]

    def run(
        self, function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions
    ) -> Iterator[tuple[Any, Any]]:
        """Wherever Ray finds room."""
        return cluster.run_ray(self.where, function, pieces, terms)


ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "ray": RayEngine}


def find_engine(text: str) -> Engine:
    """The engine that a text names: `local`, `local:4`, `ray`, or an address of a cluster."""
    name, mark, where = text.partition(":")
    if text == "auto" or "://" in text or (mark and where.isdigit() and name != "local"):
        cluster.parse_address(text)
        return RayEngine(text)
    row = ENGINES["local"] if name == "local" and mark else lookup(ENGINES, text, kind="engine")
    engine = row(where if mark else None)
    if isinstance(engine, LocalEngine):
        engine.check()
    return engine


def run_pieces(
    engine: str,
    function: Callable[[Piece], PieceResult],
    pieces: Iterable[Piece],
    *,
    key: Callable[[Piece], str] = str,
    needs: Resources | None = None,
    tries: int = MAX_TRIES,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Piece, PieceResult | PieceFailed]]:
    """Each piece with its result, or with its failure, as they finish.

    For every engine but `local` the function must be importable by its name (a function or a
    frozen value of a module), and pieces and results plain data: they travel.
    """
    terms = PieceOptions(key, needs or Resources(), tries, say)
    return find_engine(engine).run(function, pieces, terms)
