"""The choices of the Live page: models, fitted shortcuts, tasks, probes of runs."""

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
"""Maximum length of a list; the newest entries come first."""
MAX_READ = 200
"""Runs that are looked at for them."""


@dataclass(frozen=True)
class ShortcutChoice:
    """A shortcut file in the runs folder."""

    path: Path
    model: str
    """The model it was fitted on; `?` if its metadata has none."""
    label: str


@dataclass(frozen=True)
class ProbeChoice:
    """One data set and pooler of a probe run."""

    run: Path
    address: str
    models: tuple[str, ...]
    data: str
    pool: str

    @property
    def label(self) -> str:
        """The label in the list."""
        return f"{self.data} · {self.pool} · {', '.join(self.models)} · {self.address[:6]}"


def model_choices(library: Library) -> list[str]:
    """Bundled models first, then the models of the runs."""
    named = [name for record in library.records[:MAX_READ] for name in run_models(record)]
    return list(dict.fromkeys([*BUNDLED, *named]))[:MAX_CHOICES]


def run_models(record: Record) -> tuple[str, ...]:
    """The names of a run's models; none for imported logs."""
    many = record.model if isinstance(record.model, list) else [record.model]
    found = [one.get("name") for one in many if isinstance(one, dict) and not is_imported(record)]
    return tuple(name for name in found if isinstance(name, str))


def shortcut_choices(library: Library) -> list[ShortcutChoice]:
    """All shortcut files in the runs folder, the newest first."""
    root = library.folder.resolve()
    found = []
    for path in _files(library.folder):
        # Symbolic links that lead out of the folder are ignored.
        if path.resolve().is_relative_to(root):
            meta = _read_metadata(path)
            if meta.get("method", "shortcut") == "shortcut":
                name = str((meta.get("model") or {}).get("name", "?"))
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
    """The metadata in the JSON beside a file; empty if it can't be read."""
    try:
        meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8")).get("meta")
    except (OSError, ValueError, AttributeError):
        return {}
    return meta if isinstance(meta, dict) else {}


def probe_choices(library: Library) -> list[ProbeChoice]:
    """Each data set and pooler of the probe runs; imported logs have no activations."""
    own = [record for record in library.of("probe")[:MAX_READ] if not is_imported(record)]
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
    """Tasks about a single text that have a word for each class."""
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
