"""Who uses a folder, and when it was last used: small files, no locks.

`in-use-<machine>-<process>-<random>` stands in a folder while an object of a living process
holds it; the time of `used` is the last read. Both are a courtesy to the cache's eviction, so
where they can't be written (a read-only disk) reading goes on without them.
"""

import os
import weakref
from contextlib import suppress
from pathlib import Path

from cutaway.store.files import discard
from cutaway.store.process_tokens import DAY, FOREVER, is_abandoned, owner_token

_IN_USE = "in-use-"


class InUseMarker:
    """A claim on a folder that ends with this object or with its process."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written before `take`."""
        self.path = folder / f"{_IN_USE}{owner_token()}"

    def take(self) -> None:
        """The folder is marked as in use, if it is there and can be written."""
        with suppress(OSError):
            if self.path.exists() or not self.path.parent.is_dir():
                return
            self.path.touch()
            weakref.finalize(self, _release, self.path, os.getpid())


def _release(path: Path, process: int) -> None:
    """Only the process that took the hold gives it back; a fork must not."""
    if os.getpid() == process:
        discard(path)


def in_use(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    holds = list(folder.glob(f"{_IN_USE}*"))
    return any(not is_abandoned(hold, here=FOREVER, elsewhere=DAY) for hold in holds)


def remove_dead_markers(folder: Path) -> None:
    """The holds of dead processes are gone."""
    for hold in folder.glob(f"{_IN_USE}*"):
        if is_abandoned(hold, here=FOREVER, elsewhere=DAY):
            discard(hold)


def mark_used(folder: Path) -> None:
    """The folder counts as used just now."""
    with suppress(OSError):
        (folder / "used").touch()


def last_used(folder: Path) -> float:
    """When the folder was last used, in seconds since 1970."""
    for path in (folder / "used", folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0
