"""The cache folder of activations, which may be the mirror of a URL."""

import os
from pathlib import Path

from cutaway import home
from cutaway.store.remote import is_url, local_folder


def cache_folder() -> Path:
    """`CUTAWAY_HOME` (its mirror if it is a URL), else the user's cache folder."""
    value = os.environ.get("CUTAWAY_HOME", "").strip()
    return local_folder(value) if is_url(value) else home.home()
