"""Pieces that train or fit: the same function here or in workers, and what fails is named.

A worker does what this process would do: it reads the request's files by their own names and
keeps its things in the run's folder. So workers stand where the command was given, and on
several machines that folder and `--runs` are shared.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cutaway.console import Console
from cutaway.core.errors import Mismatch, Missing, RunError
from cutaway.engine import PieceFailed, Resources, find_engine, run_pieces
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.options import RunOptions
from cutaway.store import files

Piece = TypeVar("Piece")
Done = TypeVar("Done")
SpecT = TypeVar("SpecT", bound=RunOptions)

SHARED_MARKER = "shared.json"


@dataclass(frozen=True)
class WorkerTask:
    """A function that stands where the command was given, and sees its run's folder."""

    function: Callable[[Any], Any]
    folder: str
    kept: str

    def __call__(self, piece: Any) -> Any:
        """What the function gives; Missing where the folders aren't shared."""
        for folder in (self.folder, self.kept):
            if not Path(folder).is_dir():
                raise Missing(
                    f"A worker has no folder {folder!r}. Pieces that train keep their things in "
                    "the run's folder: give every machine the same --runs, and start the command "
                    "in a folder that all share."
                )
        os.chdir(self.folder)
        return self.function(piece)


def runs_on_workers(engine: str, objects: Objects | None, console: Console) -> bool:
    """Whether pieces go to workers; a model given as an object can't be opened there by name."""
    if find_engine(engine).here:
        return False
    find_engine(engine).check()
    if any(isinstance(value, LM) for value in (objects or {}).values()):
        console.print(
            f"A model was given as an object, which workers of --engine {engine} can't open: "
            "its pieces run here."
        )
        return False
    return True


def sendable(objects: Objects | None) -> dict[str, Any]:
    """The objects that go along: texts and the like, no models."""
    return {k: v for k, v in (objects or {}).items() if not isinstance(v, LM)}


def local_spec(spec: SpecT) -> SpecT:
    """The request as a worker carries it out: all of it in the one process."""
    return spec.model_copy(update={"engine": "local"})


def check_same_run(there: str, here: str) -> None:
    """Mismatch unless a worker read the same weights and rows as the driver."""
    if there != here:
        raise Mismatch(
            f"A worker reads other weights or rows (run {there}) than here (run {here}): give "
            "every machine the same checkpoint and the same files."
        )


def run_on_workers(
    engine: str,
    function: Callable[[Piece], Done],
    pieces: Iterable[Piece],
    *,
    key: Callable[[Piece], str],
    needs: Resources,
    kept: Path,
    console: Console,
) -> Iterator[tuple[Piece, Done]]:
    """Each piece with its value, as workers finish them; one that fails is named at the end.

    The others are not lost by it: they have come back, and the caller has kept them.
    """
    files.write_json(kept / SHARED_MARKER, {"engine": engine})
    stands = WorkerTask(function, str(Path.cwd()), str(kept.absolute()))
    broken: list[PieceFailed] = []
    for piece, got in run_pieces(engine, stands, pieces, key=key, needs=needs, say=console.print):
        if isinstance(got, PieceFailed):
            console.print(f"{got.key} failed after {got.tries} tries: {got.reason}")
            broken.append(got)
        else:
            yield piece, got
    if broken:
        raise failed_pieces_error(broken)


def failed_pieces_error(broken: list[PieceFailed]) -> RunError:
    """One error for all pieces that can't be done, with the first one's exit status."""
    each = "; ".join(f"{one.key} ({one.tries} tries): {one.reason}" for one in broken)
    few = "1 piece" if len(broken) == 1 else f"{len(broken)} pieces"
    error = RunError(f"{few} failed, the others are kept: {each}. Repeat the command to go on.")
    error.exit_status = broken[0].exit_status
    return error
