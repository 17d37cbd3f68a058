"""What the Live page offers to choose from: models, fitted shortcuts, tasks, probes of runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cutaway.app.library import Library
from cutaway.data.tasks import known_tasks
from cutaway.models.bundled import BUNDLED
from cutaway.report.records import is_imported
from cutaway.store.results import Record

MAX_CHOICES = 50
"""Entries of a list; the newest first."""


@dataclass(frozen=True)
class ShortcutChoice:
    """A shortcut file under the runs folder."""

    path: Path
    model: str
    """The model it says it was fitted on; `?` when it doesn't say."""
    label: str


@dataclass(frozen=True)
class ProbeChoice:
    """One set and pooler of a probe run."""

    run: Path
    address: str
    models: tuple[str, ...]
    data: str
    pool: str

    @property
    def label(self) -> str:
        """How the list calls it."""
        return f"{self.data} · {self.pool} · {', '.join(self.models)} · {self.address[:6]}"


def model_choices(shelf: Library) -> list[str]:
    """Bundled models first, then those that runs were made with."""
    named = [name for record in shelf.records for name in run_models(record)]
    return list(dict.fromkeys([*BUNDLED, *named]))[:MAX_CHOICES]


def run_models(record: Record) -> tuple[str, ...]:
    """The names of a run's models."""
    many = record.model if isinstance(record.model, list) else [record.model]
    found = [one.get("name") for one in many if isinstance(one, dict) and not is_imported(record)]
    return tuple(name for name in found if isinstance(name, str))


def shortcut_choices(shelf: Library) -> list[ShortcutChoice]:
    """Every shortcut file that lies under the runs folder, the newest first."""
    root = shelf.folder.resolve()
    found = []
    for path in _files(shelf.folder):
        # A link that leads out of the folder is not ours to read.
        if path.resolve().is_relative_to(root):
            told = _read_metadata(path)
            if told.get("method", "shortcut") == "shortcut":
                name = str((told.get("model") or {}).get("name", "?"))
                found.append(
                    (path.stat().st_mtime, ShortcutChoice(path, name, _label(path, root, name)))
                )
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])][:MAX_CHOICES]


def _files(folder: Path) -> Iterator[Path]:
    for pattern in ("shortcut/*/*.safetensors", "made/*.safetensors", "*.safetensors"):
        yield from folder.glob(pattern)


def _label(path: Path, root: Path, model: str) -> str:
    inside = path.resolve().relative_to(root)
    return f"{model} · {inside.parent.name[:6] or path.stem} · {path.name}"


def _read_metadata(path: Path) -> dict[str, Any]:
    """What the JSON beside a file says of it; nothing when it can't be read."""
    try:
        meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8")).get("meta")
    except (OSError, ValueError, AttributeError):
        return {}
    return meta if isinstance(meta, dict) else {}


def probe_choices(shelf: Library) -> list[ProbeChoice]:
    """Each set and pooler of the probe runs that were measured here."""
    own = [record for record in shelf.of("probe") if not is_imported(record)]
    return [
        ProbeChoice(record.path, record.address, run_models(record), str(data), str(pool))
        for record in own
        for data in _as_list(record.spec.get("data"))
        for pool in _as_list(record.spec.get("pool"))
        if pool != "learned"
    ][:MAX_CHOICES]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


@cache
def task_choices() -> list[str]:
    """Known tasks about one text that have a word for each class."""
    return [
        name
        for name, task in known_tasks().items()
        if task.classes
        and not task.columns.pair
        and any(
            len(words) == len(task.classes)
            for words in (task.class_words, task.label_words, task.posneg)
        )
    ]
