"""Remote stores on any fsspec URL (`s3://bucket/folder`, `gs://`, `file://`, `memory://`).

Tensors are memory-mapped, so they are read from this machine's disk: every URL has a local mirror,
a folder named by the URL's digest (in `CUTAWAY_MIRROR`, by default in the user's cache folder).

    download  a file is fetched once, when it is needed, atomically
    upload    a file is uploaded before its description, and is used locally only after that

So the mirror never has more than the store, incomplete uploads are never seen, and a mirror can
be deleted at any time. Credentials are configured in fsspec (environment variables or its
configuration files); a URL with a user or password is refused, because it would be written into
every result.
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


def is_url(location: Path | str) -> bool:
    """Whether it is a URL and not a folder."""
    return "://" in str(location)


def check_url(url: str) -> str:
    """The URL without a trailing slash; BadSpec, without repeating it, if it has secrets."""
    try:
        parsed = urlsplit(url)
    except ValueError:
        # The original message may repeat the URL.
        scheme = url.partition("://")[0]
        raise BadSpec(
            f"The URL {scheme}://... is invalid: it has a wrong bracket or character. Write it as "
            "scheme://place/folder."
        ) from None
    if "@" in parsed.netloc or parsed.query or parsed.fragment:
        raise BadSpec(
            f"The URL {parsed.scheme}://... has a user, a password or options, which would be "
            "written into every result. Set them in the environment (FSSPEC_S3_KEY, "
            "AWS_ACCESS_KEY_ID and the like), and the URL as scheme://place/folder."
        )
    return url.rstrip("/")


def mirrors_folder() -> Path:
    """The folder of all local mirrors."""
    return folder_from_env("CUTAWAY_MIRROR", "mirrors")


def local_folder(location: Path | str) -> Path:
    """The local folder: the folder itself, or the mirror of a URL."""
    if not is_url(location):
        return Path(location)
    url = check_url(str(location))
    folder = mirrors_folder() / digest_text(url)[:16]
    if not (folder / MIRROR_FILE).is_file():
        files.write_json(folder / MIRROR_FILE, {"url": url})
    return folder


@dataclass(frozen=True)
class Remote:
    """A mirror folder and its URL."""

    root: Path
    url: str

    def names(self, folder: Path) -> list[str]:
        """The names in a folder of the store; none if it doesn't exist."""
        with self._errors():
            system, location = self._at(folder)
            system.invalidate_cache()
            try:
                found = system.ls(location, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted({str(name).rstrip("/").rpartition("/")[2] for name in found} - {""})

    def fetch(self, path: Path, check: Callable[[Path], object] = lambda _: None) -> bool:
        """Fetch a file that isn't local and verify it with `check`; whether it exists."""
        if path.is_file():
            return True
        temporary = files.temporary_path(path)
        with files.disk_errors(path):
            files.make_folder(path.parent)
        try:
            with self._errors():
                system, location = self._at(path)
                try:
                    system.get_file(location, str(temporary))
                except FileNotFoundError:
                    return False
            check(temporary)
            with files.disk_errors(path):
                temporary.replace(path)
        finally:
            files.discard(temporary)
        return True

    def send(self, path: Path, data: bytes | None = None) -> None:
        """Upload the file, or `data` under its name."""
        with self._errors():
            system, location = self._at(path)
            system.makedirs(location.rpartition("/")[0], exist_ok=True)
            if data is None:
                system.put_file(str(path), location)
            else:
                system.pipe_file(location, data)

    def tensor(self, path: Path, name: str) -> bytes | None:
        """Fetch the bytes of one tensor of a safetensors file; None if it doesn't exist."""
        with self._errors():
            system, location = self._at(path)
            try:
                size = int.from_bytes(system.cat_file(location, start=0, end=8), "little")
                header = json.loads(system.cat_file(location, start=8, end=8 + size))
                begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
                found: bytes = system.cat_file(location, start=begin, end=end)
            except (FileNotFoundError, KeyError, ValueError):
                return None
        return found

    def _at(self, path: Path) -> tuple[Any, str]:
        inner = path.relative_to(self.root).as_posix()
        return _filesystem(self.url if inner == "." else f"{self.url}/{inner}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn whatever fsspec raises into one of Cutaway's errors."""
        try:
            yield
        except CutawayError:
            raise
        except ImportError as error:
            raise Missing(f"{self.url!r} needs a package that is not installed: {error}.") from None
        except Exception as error:
            message = (str(error).splitlines() or [""])[0][:200]
            raise RunError(
                f"Can't use {self.url!r}: {type(error).__name__}: {message}. Check the URL and the "
                "permissions, then repeat the command to continue."
            ) from error


def _filesystem(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        system, location = url_to_fs(url)
    except ValueError as error:
        raise BadSpec(f"{url!r} is not a URL that fsspec supports: {error}") from None
    return system, str(location)


def remote_of(path: Path) -> Remote | None:
    """The remote store of a path in a mirror; None for other folders."""
    root = mirrors_folder()
    if root not in path.parents:
        return None
    mirror = root / path.relative_to(root).parts[0]
    if not (mirror / MIRROR_FILE).is_file():
        return None
    return Remote(mirror, files.read_json(mirror / MIRROR_FILE)["url"])


def fetch(path: Path, check: Callable[[Path], object] = lambda _: None) -> bool:
    """Fetch a file of a remote store; False for local folders and for damaged files."""
    remote = remote_of(path)
    try:
        return remote is not None and remote.fetch(path, check)
    except Corrupt:
        return False


def fetch_sealed(folder: Path, matches: Callable[[str], bool]) -> None:
    """Fetch every sealed file of a folder whose name matches; incomplete ones are skipped."""
    remote = remote_of(folder)
    for name in remote.names(folder) if remote is not None else ():
        if matches(name):
            fetch(folder / name, files.read_sealed)


def send(path: Path, data: bytes | None = None) -> None:
    """Upload a file (or `data` under its name) to the remote store; no effect for local folders."""
    remote = remote_of(path)
    if remote is not None:
        remote.send(path, data)


def list_names(folder: Path) -> list[str]:
    """The names in a folder of the remote store; none for local folders."""
    remote = remote_of(folder)
    return [] if remote is None else remote.names(folder)


def fetch_tensor(path: Path, name: str, sha256: str) -> bytes | None:
    """Fetch one tensor of a file that is not local; None if the file is local or damaged."""
    remote = None if path.is_file() else remote_of(path)
    found = None if remote is None else remote.tensor(path, name)
    return found if found is not None and hashlib.sha256(found).hexdigest() == sha256 else None
