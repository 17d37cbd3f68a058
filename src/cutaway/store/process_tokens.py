"""Whose file is this: names that carry the machine and the process that made them.

Temporary files and in-use stamps end in `<machine>-<process>-<random>`. A reader of the name
alone can tell whether their maker still lives, so no lock and no server is needed.
"""

import os
import platform
import re
import time
from functools import cache
from pathlib import Path
from uuid import uuid4

from cutaway.core.digest import digest_text

HOUR, DAY, FOREVER = 3600.0, 86400.0, float("inf")

_TOKEN = re.compile(r"([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{32}$")


@cache
def machine_id() -> str:
    """Eight hex digits for this machine, or for this container on it."""
    try:
        # Containers may share a host name, never the list of processes.
        processes = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        processes = 0
    return digest_text(f"{platform.node()} {processes}")[:8]


def owner_token() -> str:
    """A unique ending that names this machine and this process."""
    return f"{machine_id()}-{os.getpid()}-{uuid4().hex}"


def is_abandoned(path: Path, *, here: float, elsewhere: float) -> bool:
    """Whether the maker of `path` is gone, told by its name and its age.

    A dead process of this machine is gone at once. A living one is given `here` seconds of
    silence (its number may have been used again), one of another machine `elsewhere`.
    """
    found = _TOKEN.search(path.name)
    if found is None:
        return False
    mine = found[1] == machine_id()
    if mine and not _process_exists(int(found[2])):
        return True
    return _seconds_since_change(path) > (here if mine else elsewhere)


def _process_exists(process: int) -> bool:
    # Slow to load, and few readers of a store ever meet a name to ask about.
    import psutil

    return bool(psutil.pid_exists(process))


def _seconds_since_change(path: Path) -> float:
    """Seconds since the last change; 0 when the file has just vanished."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
