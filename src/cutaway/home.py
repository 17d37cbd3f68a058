"""Paths, the folder where Cutaway caches what it can compute again, and small caches in it."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

from cutaway.core.errors import BadSpec


def expand_path(path: str | Path) -> Path:
    """The path with a leading ~ expanded, if there is such a home."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):
        return Path(path)


def path_exists(path: Path) -> bool:
    """Whether there is a file or folder; a name too long for one is none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def need_expandable_path(option: str, text: str) -> Path:
    """The path with a leading ~ expanded; BadSpec if there is no such home."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise BadSpec(
            f"{option} is {text!r}: there is no home {text.split('/')[0]!r} on this machine. Give "
            "the full path, or ./~... for a folder with that name."
        ) from None


def folder_from_env(variable: str, *below: str) -> Path:
    """The folder in an environment variable, else one in the user's cache folder.

    A URL in the variable is not a folder of this machine, so it counts as unset.
    """
    value = os.environ.get(variable, "").strip()
    if value and "://" not in value:
        return need_expandable_path(variable, value).absolute()
    return Path(platformdirs.user_cache_dir("cutaway"), *below).absolute()


def home() -> Path:
    """The cache folder: `CUTAWAY_HOME` if set, else the user's cache folder."""
    return folder_from_env("CUTAWAY_HOME")


def read_memo(name: str, key: str) -> Any:
    """The value stored under the key in `<home>/<name>.json`, or None."""
    return _read_table(home() / f"{name}.json").get(key)


def write_memo(name: str, key: str, value: Any) -> None:
    """Store the value under the key; does nothing if the home can't be written."""
    path = home() / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_table(path, _read_table(path) | {key: value})
    except OSError:
        return


def _read_table(path: Path) -> dict[str, Any]:
    """The stored table; an unreadable one counts as empty."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _write_table(path: Path, table: dict[str, Any]) -> None:
    """Write a temporary file and rename it, so that a reader never sees half a table."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
