"""What every engine agrees on: pieces with a name, tries, and how a failure is told."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cutaway.core.errors import Corrupt, CutawayError, RunError

MAX_TRIES = 3
# What a worker must see as the driver does: where things are kept, what may be asked.
FORWARDED_VARIABLES = ("CUTAWAY_", "HF_", "TRANSFORMERS_OFFLINE")


def forwarded_environment() -> dict[str, str]:
    """The environment that travels with the work."""
    return {
        name: value for name, value in os.environ.items() if name.startswith(FORWARDED_VARIABLES)
    }


@dataclass(frozen=True)
class Resources:
    """What one piece takes of the machine it runs on; Ray places pieces by it."""

    cpus: float = 1
    gpus: float = 0
    memory: int = 0
    """Bytes; 0 leaves it to the machine."""


@dataclass(frozen=True)
class PieceOptions:
    """How pieces are named, what each needs, how often one is tried, who hears of trouble."""

    key: Callable[[Any], str] = str
    needs: Resources = field(default_factory=Resources)
    tries: int = MAX_TRIES
    say: Callable[[str], None] = lambda _: None


class PieceFailed(RunError):
    """A piece that can't be done: its key, how often it was tried, and the reason."""

    def __init__(
        self, key: str, tries: int, reason: str, exit_status: int = 1, passing: bool = False
    ) -> None:
        """Its text is the reason alone, the same on every engine."""
        super().__init__(reason)
        self.key, self.tries, self.reason, self.exit_status = key, tries, reason, exit_status
        self.passing = passing
        """The machine's fault (a disk, a damaged file), which another day may not have."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Failures travel between processes."""
        return PieceFailed, (self.key, self.tries, self.reason, self.exit_status, self.passing)


@dataclass(frozen=True)
class PieceOutcome:
    """What a try gave: a value, or the reason why there is none."""

    value: Any = None
    reason: str | None = None
    final: bool = False
    """Trying again would give the same."""
    exit_status: int = 1
    passing: bool = False


def try_piece(function: Callable[[Any], Any], piece: Any) -> PieceOutcome:
    """One try of one piece; errors raised on purpose would only repeat themselves."""
    try:
        return PieceOutcome(function(piece))
    except CutawayError as error:
        return PieceOutcome(
            reason=str(error), final=True, exit_status=error.exit_status,
            passing=isinstance(error, Corrupt),
        )  # fmt: skip
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return PieceOutcome(reason=reason, passing=isinstance(error, OSError))


@dataclass(eq=False)
class PendingPiece:
    """A piece on its way, and how often it was tried."""

    piece: Any
    key: str
    tries: int = 0


class PieceQueue:
    """Hands out pieces and takes outcomes back; a piece leaves it once, done or failed."""

    def __init__(self, pieces: Iterable[Any], terms: PieceOptions) -> None:
        """Pieces are taken from the source only when somebody has room for them."""
        self._source, self._terms = iter(pieces), terms
        self._again: deque[PendingPiece] = deque()

    def take(self) -> PendingPiece | None:
        """The next piece to try; None when there is none just now."""
        if self._again:
            return self._again.popleft()
        for piece in self._source:
            return PendingPiece(piece, self._terms.key(piece))
        return None

    def settle(self, task: PendingPiece, outcome: PieceOutcome) -> Iterator[tuple[Any, Any]]:
        """The piece with its value or its failure; nothing when it is to be tried again."""
        task.tries += 1
        if outcome.reason is None:
            yield task.piece, outcome.value
        elif outcome.final or task.tries >= self._terms.tries:
            why = (outcome.reason, outcome.exit_status, outcome.passing)
            yield task.piece, PieceFailed(task.key, task.tries, *why)
        else:
            self._terms.say(
                f"Piece {task.key} failed (try {task.tries} of {self._terms.tries}), "
                f"it is tried again: {outcome.reason}"
            )
            self._again.append(task)
