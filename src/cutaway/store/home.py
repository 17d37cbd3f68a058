"""Where Cutaway keeps what it can make again."""

import os
from pathlib import Path

import platformdirs

from cutaway.store.remote import is_url, local


def home() -> Path:
    """The cache folder: `CUTAWAY_HOME` (of a URL its mirror), else the user's cache folder."""
    chosen = os.environ.get("CUTAWAY_HOME", "").strip()
    if is_url(chosen):
        return local(chosen)
    folder = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("cutaway"))
    return folder.expanduser().absolute()
