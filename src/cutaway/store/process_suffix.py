"""File names that contain the machine and the process that created them.

Temporary files and in-use markers end in `<machine>-<process>-<random>`. The name alone shows
whether the process still exists, so no locks and no server are needed.
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
    """Eight hex digits that identify this machine or container."""
    try:
        # Containers may share a host name but not a process namespace.
        processes = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        processes = 0
    return digest_text(f"{platform.node()} {processes}")[:8]


def owner_token() -> str:
    """A unique suffix with this machine and this process."""
    return f"{machine_id()}-{os.getpid()}-{uuid4().hex}"


def is_abandoned(path: Path, *, here: float, elsewhere: float) -> bool:
    """Whether the process that created `path` has ended, judged by the name and the file's age.

    A dead process of this machine counts at once. If a process with that id exists (ids are
    reused), the file must be `here` seconds old; on another machine, `elsewhere` seconds.
    """
    match = _TOKEN.search(path.name)
    if match is None:
        return False
    mine = match[1] == machine_id()
    if mine and not _process_exists(int(match[2])):
        return True
    return _seconds_since_change(path) > (here if mine else elsewhere)


def _process_exists(process: int) -> bool:
    # Imported here because it is slow to load and rarely needed.
    import psutil

    return bool(psutil.pid_exists(process))


def _seconds_since_change(path: Path) -> float:
    """Seconds since the last change; 0 if the file no longer exists."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
