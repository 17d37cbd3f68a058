"""Run many independent pieces: in this process, in several processes, or on a Ray cluster.

An engine takes idempotent pieces and a function, and yields results as they finish. The caller
records what is done (see `cutaway.store`), so an engine is stateless.

    local              in this process, one after the other
    local:4            four processes, each with a quarter of the cores
    ray                a new Ray instance on this machine
    ray://host:10001   an existing cluster, from outside
    host:6379, auto    an existing cluster, from one of its machines

A piece that raises or kills its worker is tried three times, then it is returned as
`PieceFailed` with its key and the reason. Leaving the loop cancels the rest.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.engine import cluster
from cutaway.engine import process_pool as pool
from cutaway.engine.local import run_inline
from cutaway.engine.pieces import (
    MAX_TRIES,
    PieceFailed,
    PieceFunction,
    PieceOptions,
    PieceResults,
    Pieces,
    Resources,
)

__all__ = ["ENGINES", "PieceFailed", "Resources", "find_engine", "run_pieces"]

POSITIVE_INTEGER = re.compile(r"0*[1-9][0-9]{0,3}")
Piece = TypeVar("Piece")
PieceResult = TypeVar("PieceResult")


@dataclass(frozen=True)
class Engine(ABC):
    """A way to run pieces; `target` is a number of processes or an address of a cluster."""

    target: str | None = None

    @property
    def in_process(self) -> bool:
        """Whether pieces run in this process, so that nothing has to be sent."""
        return False

    @abstractmethod
    def run(self, function: PieceFunction, pieces: Pieces, options: PieceOptions) -> PieceResults:
        """Each piece with its result or its failure."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the engine can't be used."""

    def workers(self) -> int:
        """Number of one-core pieces that run at once."""
        return 1

    def gpus(self) -> float:
        """Number of GPUs that can be assigned to pieces; local engines don't assign them."""
        return 0


class LocalEngine(Engine):
    """In this process, or in N processes."""

    @property
    def in_process(self) -> bool:
        """True for `local`, False for `local:N`."""
        return self.target is None

    def check(self) -> None:
        """Raise BadSpec unless N is a positive integer."""
        if self.target is not None and not POSITIVE_INTEGER.fullmatch(self.target):
            raise BadSpec(f"engine local:N needs a number of processes >= 1, got {self.target!r}.")

    def workers(self) -> int:
        """Number of processes."""
        return 1 if self.target is None else int(self.target)

    def run(self, function: PieceFunction, pieces: Pieces, options: PieceOptions) -> PieceResults:
        """One after the other, or in N processes."""
        if self.target is None:
            return run_inline(function, pieces, options)
        return pool.run_pool(int(self.target), function, pieces, options)


class RayEngine(Engine):
    """On a Ray cluster: a new one on this machine, or the one at an address."""

    def check(self) -> None:
        """Raise Missing unless Ray is installed and the cluster can be reached."""
        cluster.connect(self.target)

    def workers(self) -> int:
        """Current number of CPUs in the cluster."""
        return max(1, int(cluster.capacity(self.target)["cpus"]))

    def gpus(self) -> float:
        """Current number of GPUs in the cluster."""
        return cluster.capacity(self.target)["gpus"]

    def run(self, function: PieceFunction, pieces: Pieces, options: PieceOptions) -> PieceResults:
        """On the machines that Ray chooses."""
        return cluster.run_ray(self.target, function, pieces, options)


ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "ray": RayEngine}


def find_engine(text: str) -> Engine:
    """The engine for `local`, `local:4`, `ray`, or the address of a cluster."""
    name, colon, target = text.partition(":")
    if text == "auto" or "://" in text or (colon and target.isdigit() and name != "local"):
        cluster.parse_address(text)
        return RayEngine(text)
    row = ENGINES["local"] if name == "local" and colon else lookup(ENGINES, text, kind="engine")
    engine = row(target if colon else None)
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
    notify: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Piece, PieceResult | PieceFailed]]:
    """Yield each piece with its result or its failure, as they finish.

    For every engine but `local` the function must be importable by name (a function or a frozen
    dataclass instance), and pieces and results must be picklable. `notify` gets a message for
    every retry.
    """
    options = PieceOptions(key, needs or Resources(), tries, notify)
    return find_engine(engine).run(function, pieces, options)
