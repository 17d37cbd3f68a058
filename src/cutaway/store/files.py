"""Files that are whole or not there: written aside, synced, renamed.

write_atomic      bytes at a path: all of them, or what was there before
write_json        the same for JSON; write_sealed adds a checksum of the content
read_json         Missing when absent, Corrupt when cut short
need_room         NoRoom before the work, instead of a full disk in the middle of it
disk_errors       every OSError becomes one of Cutaway's errors, with the path in it
"""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cutaway.core.errors import Corrupt, CutawayError, Missing, NoRoom, RequestError, RunError
from cutaway.store.process_tokens import DAY, HOUR, is_abandoned, owner_token

Chunk = bytes | bytearray | memoryview

# A JSON file above this size is a mistake or a trap, and is not read into memory.
JSON_LIMIT = 128 << 20

_TEMPORARY_MARK = ".tmp-"

_CHOOSE_FOLDER = "Choose another folder with --runs or CUTAWAY_HOME."
_FREE_SPACE = f"Make room (`cutaway cache prune` drops old activations). {_CHOOSE_FOLDER}"

# What the system says -> which of our errors, what it means, what mends it.
_REASONS: dict[int, tuple[type[CutawayError], str, str]] = {
    errno.ENOSPC: (NoRoom, "the disk is full", _FREE_SPACE),
    errno.EDQUOT: (NoRoom, "the quota is used up", _FREE_SPACE),
    errno.EFBIG: (NoRoom, "the file is larger than this disk or process allows", _FREE_SPACE),
    errno.EROFS: (RequestError, "the disk is read-only", _CHOOSE_FOLDER),
    errno.EACCES: (RequestError, "permission denied", _CHOOSE_FOLDER),
    errno.EPERM: (RequestError, "permission denied", _CHOOSE_FOLDER),
    errno.ENOTDIR: (RequestError, "a part of this path is a file, not a folder", _CHOOSE_FOLDER),
    errno.EEXIST: (RequestError, "a file stands where a folder is needed", _CHOOSE_FOLDER),
    errno.EISDIR: (RequestError, "a folder stands where a file is needed", _CHOOSE_FOLDER),
    errno.ENAMETOOLONG: (RequestError, "the name is too long for this disk", _CHOOSE_FOLDER),
}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a system error into a NoRoom, RequestError or RunError that names `path`."""
    try:
        yield
    except OSError as error:
        plain = (RunError, error.strerror or str(error), "Repeat the command.")
        kind, reason, mend = _REASONS.get(error.errno or 0, plain)
        raise kind(f"Can't use {str(path)!r}: {reason}. {mend}") from error


def temporary_path(path: Path) -> Path:
    """A unique temporary name beside `path`, which readers ignore and `sweep` knows."""
    return path.with_name(f"{path.name}{_TEMPORARY_MARK}{owner_token()}")


def is_temporary(path: Path) -> bool:
    """Whether the name is one that `sibling` makes."""
    return _TEMPORARY_MARK in path.name


def write_atomic(path: Path, data: Chunk | Iterable[Chunk]) -> None:
    """`path` holds exactly `data` afterwards; killed at any moment, what it held before."""
    aside = temporary_path(path)
    with disk_errors(path):
        make_folder(path.parent)
        try:
            write_synced(aside, data)
            aside.replace(path)
        finally:
            discard(aside)
        sync_folder(path.parent)


def write_synced(path: Path, data: Chunk | Iterable[Chunk]) -> None:
    """A new file with `data`, on the disk itself when this returns. Not atomic."""
    chunks = [data] if isinstance(data, bytes | bytearray | memoryview) else data
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        for chunk in chunks:
            rest = memoryview(chunk).cast("B") if len(chunk) else memoryview(b"")
            while rest:
                rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """The folder and those above it exist, and survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """The names in `folder` are on the disk; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(path: Path) -> None:
    """A file or folder is gone; what can't be removed now is left for `sweep`."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """The folder is gone at once: renamed out of the readers' sight, then emptied."""
    aside = temporary_path(folder)
    if not folder.exists():
        return
    with disk_errors(folder):
        try:
            folder.rename(aside)
        except FileNotFoundError:
            return
    discard(aside)


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Removes the temporary files of dead processes; returns what it removed."""
    stale: list[Path] = []
    # Only a courtesy: a folder that can't be listed says so when it is needed.
    with suppress(OSError):
        found = folder.glob(f"*{_TEMPORARY_MARK}*")
        stale = [path for path in found if is_abandoned(path, here=DAY, elsewhere=HOUR)]
    for path in stale:
        discard(path)
    return stale


def jsonable(value: Any) -> Any:
    """The value as plain JSON: numpy numbers and arrays unpacked, NaN and infinities null."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item) for item in value), key=str)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return str(value)


def write_json(path: Path, value: Any) -> None:
    """Readable JSON at `path`, whole or not at all."""
    write_atomic(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Readable JSON; ASCII, because a broken character of a user's text must survive it."""
    return (json.dumps(jsonable(value), indent=1, allow_nan=False) + "\n").encode("ascii")


def file_exists(path: Path) -> bool:
    """Whether a file stands there; False where one may not even look: reading it says why."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def read_json(path: Path) -> Any:
    """What the file says; Missing when it isn't there, Corrupt when it isn't whole."""
    return _parsed(path, _read_small(path))


SEAL = b'\n "seal":'
"""What every sealed file has, and hardly any other."""


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Readable JSON at `path` that ends in a checksum of itself."""
    write_atomic(path, sealed_bytes(value))


def sealed_bytes(value: Mapping[str, Any]) -> bytes:
    """A mapping as JSON whose last key, `seal`, is the sha256 of all bytes before it."""
    body = json_bytes(value).rstrip()[:-1].rstrip()
    return _with_seal(body + b"," if value else body)


def _with_seal(head: bytes) -> bytes:
    return head + SEAL + f' "{hashlib.sha256(head).hexdigest()}"\n}}\n'.encode("ascii")


def read_sealed(path: Path, *, needs_seal: bool = True) -> dict[str, Any]:
    """The content of a sealed JSON file; Corrupt when one byte of it has changed."""
    data = _read_small(path)
    content = _parsed(path, data)
    if not isinstance(content, dict):
        raise Corrupt(f"{str(path)!r} holds {type(content).__name__}, expected a JSON object.")
    if content.pop("seal", None) is None and not needs_seal:
        return content
    if data != _with_seal(data[: max(data.rfind(SEAL), 0)]):
        raise Corrupt(f"{str(path)!r} fails its checksum: it was changed after it was written.")
    return content


def _read_small(path: Path) -> bytes:
    """The bytes of a file that must fit into memory many times over."""
    with disk_errors(path):
        try:
            with path.open("rb") as handle:
                if os.fstat(handle.fileno()).st_size > JSON_LIMIT:
                    raise Corrupt(f"{str(path)!r} has more than {JSON_LIMIT} bytes: not ours.")
                return handle.read()
        except FileNotFoundError:
            raise Missing(f"No file {str(path)!r}.") from None


def _parsed(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{str(path)!r} is cut short or damaged: {error}.") from None


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, as hex, read in pieces."""
    with disk_errors(path), path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def check_free_space(folder: Path, needed: int) -> None:
    """NoRoom unless the disk under `folder` has `needed` bytes free."""
    there = folder.absolute()
    with disk_errors(folder):
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
    if free < needed:
        raise NoRoom(
            f"{str(folder)!r} needs {needed} bytes ({needed / 1e9:.2f} GB) but only {free} "
            f"({free / 1e9:.2f} GB) are free. {_FREE_SPACE}"
        )
