"""Files of an index, which only the user who wrote them believes.

A runs folder may come from others, with an index that says something else than its runs. So each
file of an index begins with a keyed checksum, and the key is in this user's home: an index of
anyone else, and a damaged one, counts as none.
"""

import hashlib
import hmac
import mmap
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path

from cutaway.core.digest import digest_text
from cutaway.core.errors import CutawayError
from cutaway.home import home
from cutaway.store import files as disk
from cutaway.store.process_suffix import DAY, HOUR, is_abandoned, owner_token

INDEX_FOLDER = ".index"
KEY_FILE = "index.key"
KEY_BYTES, MAC_BYTES = 32, 32
# The packages whose code decides what an index holds.
_CODE = ("core", "measure", "report", "store")


def index_folder(runs: Path, *, make_key: bool = False) -> Path | None:
    """Where this user's index of a runs folder is: in it, or at home if it can't be written.

    None without a key, or if none can be made.
    """
    key = read_key(make=make_key)
    if key is None:
        return None
    beside = runs / INDEX_FOLDER / hashlib.sha256(key).hexdigest()[:16]
    # A link in someone else's folder could lead to files of this user.
    linked = beside.parent.is_symlink() or beside.is_symlink()
    if os.access(runs, os.W_OK) and not linked:
        return beside
    return home() / "index" / digest_text(str(runs.resolve()))[:32]


def read_key(*, make: bool = False) -> bytes | None:
    """This user's key; None if there is none, or if it should be made and can't be kept."""
    path = home() / KEY_FILE
    with suppress(OSError):
        if make and not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_key(path)
        found = path.read_bytes()
        return found if len(found) == KEY_BYTES else None
    return None


def _make_key(path: Path) -> None:
    """Write a new key that only this user can read."""
    temporary = disk.temporary_path(path)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        temporary.replace(path)
    finally:
        disk.discard(temporary)


def write_file(path: Path, content: bytes) -> bool:
    """Write a file of an index atomically, with its checksum; False if it can't be written."""
    key = read_key()
    if key is None:
        return False
    mac = hashlib.blake2b(content, key=key, digest_size=MAC_BYTES).digest()
    try:
        disk.write_atomic(path, [mac, content])
    except CutawayError:
        return False
    return True


def read_file(path: Path) -> memoryview | None:
    """The content of a file of an index, mapped; None if it is absent, damaged or not ours."""
    key = read_key()
    if key is None:
        return None
    try:
        with path.open("rb") as handle:
            mac = handle.read(MAC_BYTES)
            found = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
            while piece := handle.read(1 << 20):
                found.update(piece)
            if not hmac.compare_digest(mac, found.digest()):
                return None
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    return memoryview(mapped)[MAC_BYTES:]


def new_name(table: str) -> str:
    """A file name that no other process uses."""
    return f"{table}.{owner_token()}"


def remove_unused(folder: Path, table: str, used: set[str], replaced: set[str]) -> None:
    """Remove replaced files of a table, and unnamed ones of processes that have ended."""
    with suppress(OSError):
        for path in folder.glob(f"{table}.*"):
            old = path.name in replaced or is_abandoned(path, here=DAY, elsewhere=HOUR)
            if old and path.name not in used:
                disk.discard(path)


@cache
def code_digest() -> str:
    """A digest of the code that an index depends on: another version makes its own index."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for package in _CODE:
        for path in sorted((root / package).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:32]
