"""Where activations are kept: the cache folder, or the mirror of a URL."""

import os
from pathlib import Path

from cutaway import home as place
from cutaway.store.remote import is_url, local_folder


def cache_folder() -> Path:
    """The cache folder: `CUTAWAY_HOME` (of a URL its mirror), else the user's cache folder."""
    chosen = os.environ.get("CUTAWAY_HOME", "").strip()
    return local_folder(chosen) if is_url(chosen) else place.home()
