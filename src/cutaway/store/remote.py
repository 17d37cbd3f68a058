"""Stores on any fsspec URL (`s3://bucket/folder`, `gs://`, `file://`, `memory://`).

Tensors are memory-mapped, so they are read from this machine's disk: a URL has a mirror here, a
folder named by the URL's digest (below `CUTAWAY_MIRROR`, by default in the user's cache folder).

    coming    a file is fetched once, when it is needed, whole or not at all
    going     a file goes up before its description does, and counts here only after that

So the mirror never knows more than the store, a half-sent shard is never seen, and a mirror can
be dropped at any time. Who may read and write there is fsspec's business (its environment
variables and configuration files); a URL with a user or a password in it is refused, because
it would stand in every result.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cutaway.core.digest import digest_text
from cutaway.core.errors import BadSpec, Corrupt, CutawayError, Missing, RunError
from cutaway.home import folder_from_env
from cutaway.store import files

MIRROR_FILE = "mirror.json"


def is_url(place: Path | str) -> bool:
    """Whether a place is a URL and not a folder."""
    return "://" in str(place)


def check_url(url: str) -> str:
    """The URL without its last slash; BadSpec, which doesn't repeat it, for one with secrets."""
    try:
        found = urlsplit(url)
    except ValueError:
        # Its own words may repeat the URL.
        scheme = url.partition("://")[0]
        raise BadSpec(
            f"The URL {scheme}://... can't be taken apart: a bracket or a character in its place "
            "is wrong. Write it as scheme://place/folder."
        ) from None
    if "@" in found.netloc or found.query or found.fragment:
        raise BadSpec(
            f"The URL {found.scheme}://... carries a user, a password or options, which would "
            "stand in every result. Give them in the environment (FSSPEC_S3_KEY, "
            "AWS_ACCESS_KEY_ID and the like), and the URL as scheme://place/folder."
        )
    return url.rstrip("/")


def mirrors_folder() -> Path:
    """Where this machine keeps its copies."""
    return folder_from_env("CUTAWAY_MIRROR", "mirrors")


def local_folder(place: Path | str) -> Path:
    """The folder to work in: the place itself, or the mirror of a URL."""
    if not is_url(place):
        return Path(place)
    url = check_url(str(place))
    folder = mirrors_folder() / digest_text(url)[:16]
    if not (folder / MIRROR_FILE).is_file():
        files.write_json(folder / MIRROR_FILE, {"url": url})
    return folder


@dataclass(frozen=True)
class Remote:
    """A folder of a mirror and the URL it stands for."""

    root: Path
    url: str

    def names(self, folder: Path) -> list[str]:
        """The names in a folder of the store, none when it isn't there."""
        with self._errors():
            system, place = self._at(folder)
            system.invalidate_cache()
            try:
                found = system.ls(place, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted({str(name).rstrip("/").rpartition("/")[2] for name in found} - {""})

    def fetch(self, path: Path, check: Callable[[Path], object] = lambda _: None) -> bool:
        """Whether the file is here now: fetched, looked at by `check`, and only then in place."""
        if path.is_file():
            return True
        aside = files.temporary_path(path)
        with files.disk_errors(path):
            files.make_folder(path.parent)
        try:
            with self._errors():
                system, place = self._at(path)
                try:
                    system.get_file(place, str(aside))
                except FileNotFoundError:
                    return False
            check(aside)
            with files.disk_errors(path):
                aside.replace(path)
        finally:
            files.discard(aside)
        return True

    def send(self, path: Path, data: bytes | None = None) -> None:
        """The file, or `data` under its name, is in the store when this returns."""
        with self._errors():
            system, place = self._at(path)
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            if data is None:
                system.put_file(str(path), place)
            else:
                system.pipe_file(place, data)

    def tensor(self, path: Path, name: str) -> bytes | None:
        """The bytes of one tensor of a safetensors file, without the rest; None when it is gone."""
        with self._errors():
            system, place = self._at(path)
            try:
                size = int.from_bytes(system.cat_file(place, start=0, end=8), "little")
                header = json.loads(system.cat_file(place, start=8, end=8 + size))
                begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
                found: bytes = system.cat_file(place, start=begin, end=end)
            except (FileNotFoundError, KeyError, ValueError):
                return None
        return found

    def _at(self, path: Path) -> tuple[Any, str]:
        inner = path.relative_to(self.root).as_posix()
        return _filesystem(self.url if inner == "." else f"{self.url}/{inner}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What a file system of fsspec raises (anything) as one of Cutaway's errors."""
        try:
            yield
        except CutawayError:
            raise
        except ImportError as error:
            raise Missing(f"{self.url!r} needs a package that is not here: {error}.") from None
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:200]
            raise RunError(
                f"Can't use {self.url!r}: {type(error).__name__}: {said}. Look at the address and "
                "at who may write there, then repeat the command; it goes on from there."
            ) from error


def _filesystem(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        system, place = url_to_fs(url)
    except ValueError as error:
        raise BadSpec(f"{url!r} is no URL that fsspec knows: {error}") from None
    return system, str(place)


def remote_of(path: Path) -> Remote | None:
    """The URL behind a path in a mirror; None for a plain folder."""
    root = mirrors_folder()
    if root not in path.parents:
        return None
    mirror = root / path.relative_to(root).parts[0]
    if not (mirror / MIRROR_FILE).is_file():
        return None
    return Remote(mirror, files.read_json(mirror / MIRROR_FILE)["url"])


def fetch(path: Path, check: Callable[[Path], object] = lambda _: None) -> bool:
    """Whether a file that wasn't here was fetched; never in a plain folder, nor a damaged one."""
    remote = remote_of(path)
    try:
        return remote is not None and remote.fetch(path, check)
    except Corrupt:
        return False


def fetch_sealed(folder: Path, fits: Callable[[str], bool]) -> None:
    """Every sealed file of the store whose name fits is here; one that is half there is not."""
    remote = remote_of(folder)
    for name in remote.names(folder) if remote is not None else ():
        if fits(name):
            fetch(folder / name, files.read_sealed)


def send(path: Path, data: bytes | None = None) -> None:
    """The file (or `data` under its name) is in the store too; nothing to do in a plain folder."""
    remote = remote_of(path)
    if remote is not None:
        remote.send(path, data)


def list_names(folder: Path) -> list[str]:
    """What the store has in a folder of a mirror; nothing for a plain folder."""
    remote = remote_of(folder)
    return [] if remote is None else remote.names(folder)


def fetch_tensor(path: Path, name: str, sha256: str) -> bytes | None:
    """A tensor of a shard that isn't fetched yet; None when it is, or can't be had whole."""
    remote = None if path.is_file() else remote_of(path)
    found = None if remote is None else remote.tensor(path, name)
    return found if found is not None and hashlib.sha256(found).hexdigest() == sha256 else None
