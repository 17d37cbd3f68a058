"""Snapshots of work that takes long: when they are due, and how they are written.

One rule for all commands: a snapshot is due `SAVE_SECONDS` after the last one, so a kill costs at
most a minute of work. Where writing takes longer than a quarter of that, it is due after four times
as long as writing took, so that at most a fifth of the time is spent on it.

A snapshot is a folder `step-00000100` with an artefact in it (safetensors and JSON). It is written
under a temporary name and renamed; only then the one before is removed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.console import Console
from cutaway.core.errors import Corrupt, Missing, NoRoom
from cutaway.store import files
from cutaway.store.artefacts import Artefact, load_artefact, save_artefact

if TYPE_CHECKING:
    from torch import Tensor

SAVE_SECONDS = 30.0
"""Seconds of work between two snapshots; 0 saves at every chance."""
# Work between two snapshots, as a multiple of the time that writing one takes.
WORK_PER_WRITING = 4.0
# The end of a loop is saved after this share of SAVE_SECONDS.
SHARE_AT_END = 0.1

STATE_FILE = "state.safetensors"


class SaveClock:
    """Says when unfinished work is due to be saved."""

    def __init__(self) -> None:
        """The clock starts now."""
        self._saved, self._writing = time.monotonic(), 0.0

    def due(self, *, at_end: bool = False, ahead: float = 0.0) -> bool:
        """Whether to save now; `at_end` of a loop it is due earlier.

        `ahead` are the seconds until the next chance.
        """
        least = SAVE_SECONDS * SHARE_AT_END if at_end else SAVE_SECONDS
        longest = self._writing * (min(1.0, WORK_PER_WRITING) if at_end else WORK_PER_WRITING)
        return time.monotonic() + ahead - self._saved >= max(least, longest)

    def saved(self, began: float) -> None:
        """Writing began at this time (`time.monotonic`) and has ended now."""
        self._saved = time.monotonic()
        self._writing = self._saved - began


def write_snapshot(
    folder: Path, step: int, tensors: "Mapping[str, Tensor]", facts: Mapping[str, Any]
) -> Path:
    """Write a snapshot; its file. If killed at any moment, the one before is still there."""
    older = _steps(folder)
    place = _next_place(folder, step, older)
    aside = files.temporary_path(place)
    try:
        save_artefact(aside / STATE_FILE, tensors, facts)
        with files.disk_errors(place):
            # Another process that works on the same run may have saved this step meanwhile.
            if not place.exists():
                aside.rename(place)
            files.sync_folder(folder)
    finally:
        files.discard(aside)
    for one in older:
        files.remove_folder(one)
    return place / STATE_FILE


def read_snapshot(folder: Path, console: Console) -> Artefact | None:
    """The newest readable snapshot in `folder`, or None; its tensors are views of its file."""
    files.remove_stale_temporaries(folder)
    for place in reversed(_steps(folder)):
        try:
            return load_artefact(place / STATE_FILE)
        except (Corrupt, Missing) as error:
            console.print(f"A checkpoint is skipped: {error}")
    return None


def _next_place(folder: Path, step: int, older: list[Path]) -> Path:
    """A free name that sorts after those of older snapshots, also of the same step."""
    name = f"step-{step:08d}"
    same = [int(path.suffix[1:] or 0) for path in older if path.stem == name]
    return folder / (f"{name}.{max(same) + 1:04d}" if same else name)


def _steps(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.glob("step-*"))
        if path.is_dir() and not files.is_temporary(path)
    ]


@dataclass
class Snapshots:
    """The snapshots of one loop; without a folder nothing is saved."""

    folder: Path | None
    console: Console
    _clock: SaveClock = field(default_factory=SaveClock)
    _full: bool = False

    def load(self) -> Artefact | None:
        """The newest snapshot."""
        found = None if self.folder is None else read_snapshot(self.folder, self.console)
        if found is not None:
            self.console.print(f"Resuming {self.folder.name if self.folder else ''}.")
        return found

    def due(self, *, at_end: bool = False) -> bool:
        """Whether `save` should be called now."""
        return self.folder is not None and not self._full and self._clock.due(at_end=at_end)

    def save(
        self, step: int, tensors: "Mapping[str, Tensor]", facts: Mapping[str, Any] | None = None
    ) -> None:
        """Write a snapshot; on a full disk the work goes on without."""
        if self.folder is None:
            return
        began = time.monotonic()
        try:
            write_snapshot(self.folder, step, tensors, facts or {})
        except NoRoom as error:
            self._full = True
            self.console.print(f"Unfinished work is no longer saved, a kill would lose it: {error}")
        self._clock.saved(began)

    def discard(self) -> None:
        """Remove all snapshots."""
        if self.folder is not None:
            files.remove_folder(self.folder)


def saved_tensors(saved: Artefact, prefix: str) -> "dict[str, Tensor]":
    """Copies of the tensors whose names begin with `prefix/`, by the rest of their names."""
    return {name: value.clone() for name, value in saved.tensors(f"{prefix}/").items()}
