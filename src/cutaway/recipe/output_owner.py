"""What a run wrote to --out is its own while it says so; else it is brought back, or made again.

Artefacts have the run's address in the JSON beside them, checkpoints in a note in their folder.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cutaway.core.errors import CutawayError
from cutaway.store import files, remote
from cutaway.store.artefacts import copy_artefact, description_path, run_of_artefact
from cutaway.store.results import Record

OWNER_FILE = "cutaway.json"


def restore_artefact(done: Record, out: str | None, file: str) -> Record | None:
    """A finished run whose artefact is at --out, copied if it was elsewhere; None when it is lost.

    `file` is what it is called in the run's own folder.
    """
    own, told = done.path / file, Path(str(done.summary.get("out", file)))
    for path in (own, description_path(own)):
        if not path.is_file():
            remote.fetch(path)
    kept = [path for path in (own, told) if run_of_artefact(path) == done.address]
    if out is None:
        return done if kept else None
    if run_of_artefact(Path(out)) != done.address:
        if not kept:
            return None
        copy_artefact(kept[0], Path(out))
    return replace(done, summary={**done.summary, "out": out})


def attach_artefact(saved: Record, out: str | None, file: str, made: Path) -> Record:
    """The saved run with its artefact, also when the run was there before and had lost it."""
    if out is None and run_of_artefact(saved.path / file) != saved.address:
        copy_artefact(made, saved.path / file)
    return replace(saved, summary={**saved.summary, "out": out or file})


def checkpoint_owner(folder: Path, verb: str) -> str | None:
    """The address of the run of this verb whose checkpoint a folder holds, if it holds one."""
    note = folder / OWNER_FILE
    try:
        said = files.read_json(note) if note.is_file() else None
    except CutawayError:
        return None
    found = said.get(verb) if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def restore_checkpoint(out: Path, verb: str, name: str, kept: Iterable[Path]) -> bool:
    """Whether the run's checkpoint is at `out`, copied from the first other place that has it."""
    if checkpoint_owner(out, verb) == name:
        return True
    source = next((one for one in kept if checkpoint_owner(one, verb) == name), None)
    if source is None:
        return False
    copy_folder(source, out)
    return True


def copy_folder(source: Path, out: Path) -> None:
    """The folder at `out` too, whole or not at all."""
    aside = files.temporary_path(out)
    files.make_folder(out.parent)
    with files.disk_errors(out):
        try:
            shutil.copytree(source, aside)
            files.remove_folder(out)
            aside.rename(out)
        finally:
            files.discard(aside)
