"""Paths: the user's home, and the folder where Cutaway caches what it can compute again."""

import os
from pathlib import Path

import platformdirs

from cutaway.core.errors import BadSpec


def expand_path(path: str | Path) -> Path:
    """The path with a leading ~ expanded, if there is such a home."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):
        return Path(path)


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
