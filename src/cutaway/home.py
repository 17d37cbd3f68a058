"""Where Cutaway keeps on this machine what it can make again."""

import os
from pathlib import Path

import platformdirs

from cutaway.core.errors import BadSpec


def expand_path(path: str | Path) -> Path:
    """The path with a leading ~ made real, where there is such a home."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):
        return Path(path)


def need_expandable_path(option: str, said: str) -> Path:
    """The path to write to; BadSpec where its ~ stands for nobody's home."""
    try:
        return Path(said).expanduser()
    except (RuntimeError, ValueError):
        raise BadSpec(
            f"{option} is {said!r}: there is no home {said.split('/')[0]!r} on this machine. Write "
            "the folder out in full, or ./~... for one that is called so."
        ) from None


def folder_from_env(variable: str, *below: str) -> Path:
    """The folder that an environment variable names, else one in the user's cache folder.

    A URL is no folder of this machine: then it is the user's, too.
    """
    said = os.environ.get(variable, "").strip()
    if said and "://" not in said:
        return need_expandable_path(variable, said).absolute()
    return Path(platformdirs.user_cache_dir("cutaway"), *below).absolute()


def home() -> Path:
    """The cache folder: `CUTAWAY_HOME` when it names one, else the user's cache folder."""
    return folder_from_env("CUTAWAY_HOME")
