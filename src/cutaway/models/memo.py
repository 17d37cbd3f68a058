"""A small on-disk cache for values that can be recomputed: digests, passed checks, budgets."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from cutaway.home import home


def read_memo(name: str, key: str) -> Any:
    """The value stored under the key in `<home>/<name>.json`, or None."""
    return _read(home() / f"{name}.json").get(key)


def write_memo(name: str, key: str, value: Any) -> None:
    """Store the value under the key; does nothing if the home can't be written."""
    path = home() / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, _read(path) | {key: value})
    except OSError:
        return


def _read(path: Path) -> dict[str, Any]:
    """The stored table; an unreadable one counts as empty."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _replace(path: Path, table: dict[str, Any]) -> None:
    """Write a temporary file and rename it, so that a reader never sees half a table."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
