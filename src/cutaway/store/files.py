"""Atomic file writes: to a temporary file, synced, then renamed.

write_atomic       replaces the contents of a file completely or not at all
write_json         the same for JSON; write_sealed adds a checksum of the content
read_json          Missing if the file is absent, Corrupt if it is truncated
check_free_space   NoRoom before the work, instead of a full disk in the middle of it
disk_errors        turns every OSError into one of Cutaway's errors that names the path
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
from cutaway.store.process_suffix import DAY, HOUR, is_abandoned, owner_token

Chunk = bytes | bytearray | memoryview

# Larger JSON files are not ours and are not read into memory.
JSON_LIMIT = 128 << 20

TEMPORARY_MARK = ".tmp-"

_CHOOSE_FOLDER = "Choose another folder with --runs or CUTAWAY_HOME."
_FREE_SPACE = f"Free some space (`cutaway cache prune` removes old activations). {_CHOOSE_FOLDER}"

# System error -> our error, the reason, how to fix it.
_REASONS: dict[int, tuple[type[CutawayError], str, str]] = {
    errno.ENOSPC: (NoRoom, "the disk is full", _FREE_SPACE),
    errno.EDQUOT: (NoRoom, "the quota is used up", _FREE_SPACE),
    errno.EFBIG: (NoRoom, "the file is larger than this disk or process allows", _FREE_SPACE),
    errno.EROFS: (RequestError, "the disk is read-only", _CHOOSE_FOLDER),
    errno.EACCES: (RequestError, "permission denied", _CHOOSE_FOLDER),
    errno.EPERM: (RequestError, "permission denied", _CHOOSE_FOLDER),
    errno.ENOTDIR: (RequestError, "a part of this path is a file, not a folder", _CHOOSE_FOLDER),
    errno.EEXIST: (RequestError, "there is a file where a folder is needed", _CHOOSE_FOLDER),
    errno.EISDIR: (RequestError, "there is a folder where a file is needed", _CHOOSE_FOLDER),
    errno.ENAMETOOLONG: (RequestError, "the name is too long for this disk", _CHOOSE_FOLDER),
}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a system error into a NoRoom, RequestError or RunError that names `path`."""
    try:
        yield
    except OSError as error:
        default = (RunError, error.strerror or str(error), "Repeat the command.")
        kind, reason, remedy = _REASONS.get(error.errno or 0, default)
        raise kind(f"Can't use {str(path)!r}: {reason}. {remedy}") from error


def temporary_path(path: Path) -> Path:
    """A unique temporary name next to `path`; readers ignore such names."""
    return path.with_name(f"{path.name}{TEMPORARY_MARK}{owner_token()}")


def is_temporary(path: Path) -> bool:
    """Whether the name was made by `temporary_path`."""
    return TEMPORARY_MARK in path.name


def write_atomic(path: Path, data: Chunk | Iterable[Chunk]) -> None:
    """Write `data` to `path`; if killed at any moment, the old contents remain."""
    temporary = temporary_path(path)
    with disk_errors(path):
        make_folder(path.parent)
        try:
            write_synced(temporary, data)
            temporary.replace(path)
        finally:
            discard(temporary)
        sync_folder(path.parent)


def write_synced(path: Path, data: Chunk | Iterable[Chunk]) -> None:
    """Create a file and sync it to disk; not atomic."""
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
    """Create the folder and its parents, synced to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(path: Path) -> None:
    """Remove a file or folder; what can't be removed now is removed as a stale temporary later."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder atomically: it is renamed first, then deleted."""
    temporary = temporary_path(folder)
    if not folder.exists():
        return
    with disk_errors(folder):
        try:
            folder.rename(temporary)
        except FileNotFoundError:
            return
    discard(temporary)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill, which takes the place of `folder` when the block ends well."""
    aside = temporary_path(folder)
    with disk_errors(folder):
        make_folder(folder.parent)
        # A killed process may have left a whole checkpoint here.
        remove_stale_temporaries(folder.parent)
    try:
        yield aside
        with disk_errors(folder):
            remove_folder(folder)
            aside.rename(folder)
    finally:
        discard(aside)


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Remove the temporary files of dead processes; returns what was removed."""
    stale: list[Path] = []
    # A folder that can't be listed raises when it is really needed.
    with suppress(OSError):
        paths = folder.glob(f"*{TEMPORARY_MARK}*")
        stale = [path for path in paths if is_abandoned(path, here=DAY, elsewhere=HOUR)]
    for path in stale:
        discard(path)
    return stale


def jsonable(value: Any) -> Any:
    """The value as JSON types: numpy values converted, NaN and infinities as null."""
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
    """Write indented JSON atomically."""
    write_atomic(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Indented JSON; ASCII, so that lone surrogates in a user's text survive."""
    return (json.dumps(jsonable(value), indent=1, allow_nan=False) + "\n").encode("ascii")


def file_exists(path: Path) -> bool:
    """Whether the file exists; False without permission to look, since reading it says why."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def read_json(path: Path) -> Any:
    """Read a JSON file; Missing if it is absent, Corrupt if it is damaged."""
    return _parsed(path, _read_small(path))


SEAL = b'\n "seal":'
"""Start of the checksum in every sealed file."""


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON that ends in a checksum of itself."""
    write_atomic(path, sealed_bytes(value))


def sealed_bytes(value: Mapping[str, Any]) -> bytes:
    """A mapping as JSON whose last key, `seal`, is the SHA-256 of all bytes before it."""
    body = json_bytes(value).rstrip()[:-1].rstrip()
    return _with_seal(body + b"," if value else body)


def _with_seal(head: bytes) -> bytes:
    return head + SEAL + f' "{hashlib.sha256(head).hexdigest()}"\n}}\n'.encode("ascii")


def read_sealed(path: Path, *, needs_seal: bool = True) -> dict[str, Any]:
    """Read a sealed JSON file; Corrupt if any byte has changed."""
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
    """Read a file that must be small."""
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
        raise Corrupt(f"{str(path)!r} is truncated or damaged: {error}.") from None


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with disk_errors(path), path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def check_free_space(folder: Path, needed: int) -> None:
    """Raise NoRoom unless the disk of `folder` has `needed` bytes free."""
    existing = folder.absolute()
    with disk_errors(folder):
        while not existing.exists():
            existing = existing.parent
        free = shutil.disk_usage(existing).free
    if free < needed:
        raise NoRoom(
            f"{str(folder)!r} needs {needed} bytes ({needed / 1e9:.2f} GB) but only {free} "
            f"({free / 1e9:.2f} GB) are free. {_FREE_SPACE}"
        )
