"""A small memory for what this room can work out again: digests, passed checks."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from cutaway.home import home


def read_memo(name: str, key: str) -> Any:
    """What was remembered under the key in `<home>/<name>.json`; None when nothing was."""
    return _read(home() / f"{name}.json").get(key)


def write_memo(name: str, key: str, value: Any) -> None:
    """Keep the value under the key; a home that can't be written only costs the time saved."""
    path = home() / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, _read(path) | {key: value})
    except OSError:
        return


def _read(path: Path) -> dict[str, Any]:
    """The remembered table; an unreadable one is as good as none, all in it can be redone."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _replace(path: Path, table: dict[str, Any]) -> None:
    """Write a sibling, then rename: a reader sees the old table or the new one, never half."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
