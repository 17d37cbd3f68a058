"""Where Cutaway keeps on this machine what it can make again."""

import os
from pathlib import Path

import platformdirs


def folder(variable: str, *below: str) -> Path:
    """The folder that an environment variable names, else one in the user's cache folder.

    A URL is no folder of this machine: then it is the user's, too.
    """
    said = os.environ.get(variable, "").strip()
    if said and "://" not in said:
        return Path(said).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("cutaway"), *below).absolute()


def home() -> Path:
    """The cache folder: `CUTAWAY_HOME` when it names one, else the user's cache folder."""
    return folder("CUTAWAY_HOME")
