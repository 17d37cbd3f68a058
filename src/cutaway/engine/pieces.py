"""What all engines share: named pieces, retries, and failures as values."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cutaway.core.errors import Corrupt, CutawayError, RunError

MAX_TRIES = 3
# Environment variables that workers need with the same values as the driver.
FORWARDED_VARIABLES = ("CUTAWAY_", "HF_", "TRANSFORMERS_OFFLINE")

PieceFunction = Callable[[Any], Any]
Pieces = Iterable[Any]
PieceResults = Iterator[tuple[Any, Any]]


def forwarded_environment() -> dict[str, str]:
    """The environment variables that are sent to workers."""
    return {k: v for k, v in os.environ.items() if k.startswith(FORWARDED_VARIABLES)}


@dataclass(frozen=True)
class Resources:
    """What one piece needs; Ray assigns pieces to machines by it."""

    cpus: float = 1
    gpus: float = 0
    memory: int = 0
    """In bytes; 0 means no reservation."""


@dataclass(frozen=True)
class PieceOptions:
    """How to name pieces, what each needs, how often to try one, where to report retries."""

    key: Callable[[Any], str] = str
    needs: Resources = field(default_factory=Resources)
    tries: int = MAX_TRIES
    notify: Callable[[str], None] = lambda _: None


class PieceFailed(RunError):
    """A piece that failed: its key, the number of tries, and the reason."""

    def __init__(
        self, key: str, tries: int, reason: str, exit_status: int = 1, transient: bool = False
    ) -> None:
        """The message is the reason alone, the same on every engine."""
        super().__init__(reason)
        self.key, self.tries, self.reason, self.exit_status = key, tries, reason, exit_status
        self.transient = transient
        """Caused by the machine (a disk, a damaged file), so a later run may succeed."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments: failures are sent between processes."""
        return PieceFailed, (self.key, self.tries, self.reason, self.exit_status, self.transient)


@dataclass(frozen=True)
class PieceOutcome:
    """The outcome of one try: a value, or the reason why there is none."""

    value: Any = None
    reason: str | None = None
    final: bool = False
    """Another try would fail in the same way."""
    exit_status: int = 1
    transient: bool = False


def try_piece(function: PieceFunction, piece: Any) -> PieceOutcome:
    """Try one piece; errors raised on purpose are final."""
    try:
        return PieceOutcome(function(piece))
    except CutawayError as error:
        transient = isinstance(error, Corrupt)
        return PieceOutcome(None, str(error), True, error.exit_status, transient)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return PieceOutcome(reason=reason, transient=isinstance(error, OSError))


@dataclass(eq=False)
class PendingPiece:
    """A piece that is not finished, and how often it was tried."""

    piece: Any
    key: str
    tries: int = 0


class PieceQueue:
    """Hands out pieces and takes outcomes back; every piece leaves it once, done or failed."""

    def __init__(self, pieces: Pieces, options: PieceOptions) -> None:
        """Pieces are drawn from the iterable only when a worker is free."""
        self._source, self._options = iter(pieces), options
        self._retries: deque[PendingPiece] = deque()

    def take(self) -> PendingPiece | None:
        """The next piece to try; None if there is none at the moment."""
        if self._retries:
            return self._retries.popleft()
        for piece in self._source:
            return PendingPiece(piece, self._options.key(piece))
        return None

    def settle(self, task: PendingPiece, outcome: PieceOutcome) -> PieceResults:
        """Yield the piece with its value or failure; nothing if it will be tried again."""
        task.tries += 1
        if outcome.reason is None:
            yield task.piece, outcome.value
        elif outcome.final or task.tries >= self._options.tries:
            cause = (outcome.reason, outcome.exit_status, outcome.transient)
            yield task.piece, PieceFailed(task.key, task.tries, *cause)
        else:
            self._options.notify(
                f"Piece {task.key} failed (try {task.tries} of {self._options.tries}) and is "
                f"retried: {outcome.reason}"
            )
            self._retries.append(task)
