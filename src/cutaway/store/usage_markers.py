"""Marker files that show whether a folder is in use and when it was last used.

`in-use-<machine>-<process>-<random>` exists while an object of a running process uses the folder;
the time of `used` is the last read. Both only serve the cache's eviction, so reading works
without them on a read-only disk.
"""

import os
import weakref
from contextlib import suppress
from pathlib import Path

from cutaway.store.files import discard
from cutaway.store.process_suffix import DAY, FOREVER, is_abandoned, owner_token

_IN_USE = "in-use-"


class InUseMarker:
    """A marker that is removed with this object; it is void when its process ends."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written before `create`."""
        self.path = folder / f"{_IN_USE}{owner_token()}"

    def create(self) -> None:
        """Mark the folder as in use, if it exists and is writable."""
        with suppress(OSError):
            if self.path.exists() or not self.path.parent.is_dir():
                return
            self.path.touch()
            weakref.finalize(self, _remove_own, self.path, os.getpid())


def _remove_own(path: Path, process: int) -> None:
    """Only the process that created the marker removes it; a fork must not."""
    if os.getpid() == process:
        discard(path)


def in_use(folder: Path) -> bool:
    """Whether a running process uses the folder."""
    markers = list(folder.glob(f"{_IN_USE}*"))
    return any(not is_abandoned(marker, here=FOREVER, elsewhere=DAY) for marker in markers)


def remove_dead_markers(folder: Path) -> None:
    """Remove the markers of dead processes."""
    for marker in folder.glob(f"{_IN_USE}*"):
        if is_abandoned(marker, here=FOREVER, elsewhere=DAY):
            discard(marker)


def mark_used(folder: Path) -> None:
    """Record that the folder was used now."""
    with suppress(OSError):
        (folder / "used").touch()


def last_used(folder: Path) -> float:
    """When the folder was last used, in seconds since 1970."""
    for path in (folder / "used", folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0
