"""Pieces that train or fit, run by the engine's workers.

A worker does what this process would do: it resolves the same spec and writes to the run's folder.
So workers change to the directory where the command was given, and on several machines this
directory and `--runs` must be shared.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cutaway.console import Console
from cutaway.core.errors import Mismatch, Missing, RunError
from cutaway.core.spec import address
from cutaway.engine import PieceFailed, Resources, find_engine, run_pieces
from cutaway.models.lm import LM
from cutaway.recipe.life_cycle import PASSES_FOLDER, Context, Request
from cutaway.recipe.objects import Objects
from cutaway.recipe.options import RunOptions
from cutaway.store import files
from cutaway.store.row_passes import saving_passes

Piece = TypeVar("Piece")
Done = TypeVar("Done")
RequestT = TypeVar("RequestT", bound=Request)
SpecT = TypeVar("SpecT", bound=RunOptions)

SHARED_MARKER = "shared.json"


@dataclass(frozen=True)
class WorkerTask:
    """A function that runs in the directory of the command and needs the run's folder."""

    function: Callable[[Any], Any]
    folder: str
    kept: str

    def __call__(self, piece: Any) -> Any:
        """Call the function; Missing when the folders aren't shared with this worker."""
        for folder in (self.folder, self.kept):
            if not Path(folder).is_dir():
                raise Missing(
                    f"A worker has no folder {folder!r}. Workers write to the run's folder: give "
                    "every machine the same --runs, and start the command in a shared folder."
                )
        os.chdir(self.folder)
        with saving_passes(Path(self.kept) / PASSES_FOLDER, Console(quiet=True)):
            return self.function(piece)


def runs_on_workers(engine: str, objects: Objects | None, console: Console) -> bool:
    """Whether pieces are sent to workers; not when a model was given as an object."""
    if find_engine(engine).in_process:
        return False
    find_engine(engine).check()
    if any(isinstance(value, LM) for value in (objects or {}).values()):
        console.print(
            f"A model was given as an object, which workers of --engine {engine} can't open: "
            "its pieces run in this process."
        )
        return False
    return True


def sendable(objects: Objects | None) -> dict[str, Any]:
    """The objects that can be sent to workers: all but models."""
    return {k: v for k, v in (objects or {}).items() if not isinstance(v, LM)}


def local_spec(spec: SpecT) -> SpecT:
    """The spec for a worker: everything in its own process."""
    return spec.model_copy(update={"engine": "local"})


def check_same_run(there: str, here: str) -> None:
    """Mismatch unless a worker resolved the spec to the same weights and rows."""
    if there != here:
        raise Mismatch(
            f"A worker reads other weights or rows (run {there}) than here (run {here}): give "
            "every machine the same checkpoint and the same files."
        )


def resolve_on_worker(
    resolve: Callable[[Any, Context], RequestT], spec: RunOptions, objects: Objects, run: str
) -> RequestT:
    """The request as a worker resolves it; Mismatch unless its address is that of the run."""
    request = resolve(spec, Context(objects=objects))
    check_same_run(address(spec, **request.identity), run)
    return request


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
    """Yield each piece with its result as workers finish; RunError at the end if any failed.

    Results that were yielded before are complete, and the caller has saved them.
    """
    files.write_json(kept / SHARED_MARKER, {"engine": engine})
    task = WorkerTask(function, str(Path.cwd()), str(kept.absolute()))
    broken: list[PieceFailed] = []
    for piece, got in run_pieces(engine, task, pieces, key=key, needs=needs, notify=console.print):
        if isinstance(got, PieceFailed):
            console.print(f"{got.key} failed after {got.tries} tries: {got.reason}")
            broken.append(got)
        else:
            yield piece, got
    if broken:
        raise failed_pieces_error(broken)


def failed_pieces_error(broken: list[PieceFailed]) -> RunError:
    """One error for all failed pieces, with the exit status of the first."""
    each = "; ".join(f"{one.key} ({one.tries} tries): {one.reason}" for one in broken)
    few = "1 piece" if len(broken) == 1 else f"{len(broken)} pieces"
    error = RunError(f"{few} failed, the others are saved: {each}. Repeat the command to continue.")
    error.exit_status = broken[0].exit_status
    return error
