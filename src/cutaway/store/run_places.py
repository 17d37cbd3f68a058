"""The folders of runs and the state of their files, without reading any of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cutaway.store import files as disk
from cutaway.store import remote
from cutaway.store.progress import PARTIAL_SUFFIX


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The folder of a run: `<runs>/<method>/<address>`."""

    runs: Path
    method: str
    address: str

    @property
    def key(self) -> str:
        """The name of the run in its runs folder."""
        return f"{self.method}/{self.address}"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.runs / self.method / self.address

    def stamp(self, names: Sequence[str]) -> list[int] | None:
        """Size, times and inode of each of these files; None if one can't be looked at.

        A file whose bytes were changed has another stamp: its change time can't be set back.
        """
        numbers: list[int] = []
        # As text: a Path for each of tens of thousands of files takes longer than looking at it.
        for name in names:
            try:
                found = os.stat(f"{self.runs}/{self.method}/{self.address}/{name}")  # noqa: PTH116
            except (OSError, ValueError):
                return None
            numbers += (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        return numbers


def newest_change(stamp: Sequence[int]) -> int:
    """When a stamped file was last changed, in nanoseconds."""
    return max(*stamp[1::4], *stamp[2::4])


def run_places(folder: Path) -> list[RunPlace]:
    """The folders of runs, here and in a remote store: not temporary, not partial, sorted."""
    with disk.disk_errors(folder):
        here = {(m, a) for m in _folders_in(folder) for a in _folders_in(folder / m)}
        names = remote.list_names
        there = {(m, a) for m in names(folder) for a in names(folder / m)}
    return [
        RunPlace(folder, method, address)
        for method, address in sorted(here | there)
        if disk.TEMPORARY_MARK not in address and not address.endswith(PARTIAL_SUFFIX)
    ]


def _folders_in(folder: Path) -> list[str]:
    """The names of folders; those that begin with a dot are no methods and no runs."""
    if not folder.is_dir():
        return []
    # scandir knows what is a folder without asking the disk for each.
    with os.scandir(folder) as entries:
        return [e.name for e in entries if not e.name.startswith(".") and e.is_dir()]
