"""Where Cutaway keeps what it can make again."""

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """The cache folder: `CUTAWAY_HOME` when it is set, else the user's cache folder."""
    chosen = os.environ.get("CUTAWAY_HOME", "").strip()
    folder = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("cutaway"))
    return folder.expanduser().absolute()
