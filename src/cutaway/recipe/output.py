"""Files and folders that a run writes to `--out`, or else keeps in its own folder.

An output belongs to a run if its metadata names that run: an artefact in the JSON beside it, a
checkpoint in the `cutaway.json` of its folder. An output that belongs to another run, or to none,
is restored from the run's folder, or the run is made again.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadSpec, CutawayError
from cutaway.engine.process_group import process_group
from cutaway.store import files, remote
from cutaway.store.artefacts import (
    check_output_free,
    copy_artefact,
    description_path,
    run_of_artefact,
)
from cutaway.store.results import Record

OWNER_FILE = "cutaway.json"


@dataclass(frozen=True)
class ArtefactFile:
    """A safetensors file with its JSON; `name` is what it is called in the run's folder.

    A spec with `file=False` wants the run without the file.
    """

    name: str

    @staticmethod
    def wanted(spec: Any) -> bool:
        """Whether the file is to be kept."""
        return bool(getattr(spec, "file", True))

    def check_free(self, spec: Any, address: str | None = None) -> None:
        """BadSpec when `--out` can't be written."""
        if spec.out is not None:
            check_output_free(Path(spec.out))

    def path(self, spec: Any, scratch: Path) -> Path:
        """Where to write it: `--out`, or a temporary folder until the run is saved."""
        return Path(spec.out) if spec.out else scratch / self.name

    def files(self, spec: Any, scratch: Path) -> dict[str, Path | bytes]:
        """What the run's own folder keeps of it: nothing when it is at `--out`."""
        path = self.path(spec, scratch)
        if spec.out or not self.wanted(spec):
            return {}
        return {one.name: one for one in (path, description_path(path))}

    def restore(self, spec: Any, done: Record) -> Record | None:
        """The finished run with its artefact in place; None when the artefact is lost."""
        return restore_artefact(done, spec.out, self.name) if self.wanted(spec) else done

    def finish(self, spec: Any, saved: Record, scratch: Path) -> Record:
        """The saved run with its artefact, also when an older save of it had lost the artefact."""
        if not self.wanted(spec):
            return saved
        return attach_artefact(saved, spec.out, self.name, self.path(spec, scratch))


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint that transformers loads; `verb` is the key that names its run in `cutaway.json`.

    The run's summary has its path as `checkpoint`.
    """

    verb: str
    name: str = "checkpoint"

    def check_free(self, spec: Any, address: str | None = None) -> None:
        """BadSpec when `--out` holds something else than this run's checkpoint."""
        out = Path(spec.out) if spec.out else None
        if out is None or address is None or checkpoint_owner(out, self.verb) == address:
            return
        with files.disk_errors(out):
            taken = out.is_file() or (out.is_dir() and any(out.iterdir()))
        if taken:
            other = checkpoint_owner(out, self.verb)
            what = f"the checkpoint of another run, {other}" if other else "other files"
            raise BadSpec(f"out {spec.out!r} holds {what}. Choose another folder, or remove it.")

    def write(
        self, spec: Any, scratch: Path, save: Callable[[Path], None], note: Mapping[str, Any]
    ) -> dict[str, Path | bytes]:
        """Save to `--out`, or give the files for the run's own folder."""
        if not spec.out:
            own = scratch / self.name
            _save_with_note(own, save, note)
            return {f"{self.name}/{path.name}": path for path in sorted(own.iterdir())}
        with files.replaced_folder(Path(spec.out)) as aside:
            _save_with_note(aside, save, note)
        return {}

    def restore(self, spec: Any, done: Record) -> Record | None:
        """The finished run with its checkpoint in place; None when the checkpoint is lost."""
        out = Path(spec.out) if spec.out else done.path / self.name
        known = (done.path / self.name, Path(str(done.summary["checkpoint"])))
        if checkpoint_owner(out, self.verb) != done.address:
            self.check_free(spec, done.address)
        found = process_group().broadcast(
            lambda: restore_checkpoint(out, self.verb, done.address, known)
        )
        return replace(done, summary={**done.summary, "checkpoint": str(out)}) if found else None

    def finish(self, spec: Any, saved: Record, scratch: Path) -> Record:
        """The saved run as it is."""
        return saved


def _save_with_note(folder: Path, save: Callable[[Path], None], note: Mapping[str, Any]) -> None:
    save(folder)
    files.write_json(folder / OWNER_FILE, dict(note))


def restore_artefact(done: Record, out: str | None, file: str) -> Record | None:
    """A finished run whose artefact is at --out, copied if it was elsewhere; None when it is lost.

    `file` is what it is called in the run's own folder.
    """
    own, other = done.path / file, Path(str(done.summary.get("out") or file))
    for path in (own, description_path(own)):
        if not path.is_file():
            remote.fetch(path)
    kept = [path for path in (own, other) if run_of_artefact(path) == done.address]
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
    """Copy a folder to `out` atomically."""
    with files.replaced_folder(out) as aside, files.disk_errors(out):
        shutil.copytree(source, aside)
