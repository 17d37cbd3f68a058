"""List, measure, prune and verify the activation cache."""

import math
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadSpec, Corrupt, CutawayError, Missing
from cutaway.store import files
from cutaway.store.activations import activations_folder, read_manifest
from cutaway.store.process_suffix import DAY
from cutaway.store.shards import find_shards, orphan_shards, read_shard, sidecar_path
from cutaway.store.usage_markers import in_use, last_used, remove_dead_markers

DEFAULT_GB = 20.0


@dataclass(frozen=True)
class CacheEntry:
    """One activation table in the cache; `model` is `?` if its manifest can't be read."""

    digest: str
    model: str
    rows: int
    columns: tuple[str, ...]
    bytes: int
    used: datetime
    busy: bool
    path: Path

    def plain(self) -> dict[str, Any]:
        """The entry as JSON-ready values."""
        return {**asdict(self), "used": self.used.isoformat(), "path": str(self.path)}

    def line(self) -> str:
        """The entry as one line of a listing."""
        used = f"{self.used:%Y-%m-%d %H:%M}" + (" (in use)" if self.busy else "")
        size = f"{self.rows} rows, {len(self.columns)} columns, {self.bytes / 2**20:,.1f} MB"
        return f"{self.digest[:12]}  {self.model}  {size}, used {used}"


@dataclass(frozen=True)
class CacheProblem:
    """A damaged file of the cache."""

    path: Path
    reason: str


def list_entries(folder: Path | None = None) -> list[CacheEntry]:
    """All entries, the most recently used first."""
    entries = [_entry(path) for path in _entry_folders(folder)]
    # Another process may have removed some meanwhile.
    existing = [entry for entry in entries if entry.path.is_dir()]
    return sorted(existing, key=lambda entry: (entry.used, entry.digest), reverse=True)


def cache_size(folder: Path | None = None) -> int:
    """Bytes of all entries on disk."""
    return sum(_bytes(path) for path in _entry_folders(folder))


def prune(
    *,
    max_bytes: int | None = None,
    older_than_days: float | None = None,
    digest: str | None = None,
    folder: Path | None = None,
) -> list[CacheEntry]:
    """Remove entries, the least recently used first, and return the removed entries.

    `digest` (or a prefix) removes one entry, `older_than_days` those not used for that long,
    `max_bytes` as many as needed to get below it. Entries in use are never removed.
    """
    rules = [max_bytes is not None, older_than_days is not None, digest is not None]
    if sum(rules) != 1:
        raise BadSpec("prune needs exactly one of max_bytes, older_than_days, digest.")
    for rule, value in (("max_bytes", max_bytes), ("older_than_days", older_than_days)):
        # NaN would remove every entry.
        if value is not None and not 0 <= value < math.inf:
            raise BadSpec(f"{rule} must be a number >= 0, got {value!r}.")
    files.remove_stale_temporaries(activations_folder(folder))
    oldest_first = list_entries(folder)[::-1]
    if digest is not None:
        return _evict([_by_prefix(oldest_first, digest)])
    if older_than_days is not None:
        since = time.time() - older_than_days * DAY
        return _evict(entry for entry in oldest_first if entry.used.timestamp() < since)
    return _evict(_entries_to_evict(oldest_first, max_bytes or 0))


def enforce_limit(limit_bytes: int | None = None, folder: Path | None = None) -> list[CacheEntry]:
    """Prune the cache to its limit (`CUTAWAY_CACHE_GB`, 20 by default)."""
    allowed = cache_limit() if limit_bytes is None else limit_bytes
    files.remove_stale_temporaries(activations_folder(folder))
    # Called after every extraction: usually the total size is enough to decide.
    return prune(max_bytes=allowed, folder=folder) if cache_size(folder) > allowed else []


def cache_limit() -> int:
    """The cache's limit in bytes; BadSpec if `CUTAWAY_CACHE_GB` is invalid."""
    value = os.environ.get("CUTAWAY_CACHE_GB", "").strip() or str(DEFAULT_GB)
    try:
        size_gb = float(value)
    except ValueError:
        size_gb = -1.0
    if not 0 <= size_gb < 1e9:
        raise BadSpec(f"CUTAWAY_CACHE_GB must be a number of gigabytes >= 0, got {value!r}.")
    return int(size_gb * 1e9)


def verify(repair: bool = False, folder: Path | None = None) -> list[CacheProblem]:
    """Every file that fails its checksum; `repair` removes them, and they are made again later."""
    problems = []
    for path in _entry_folders(folder):
        problems += [*_manifest_problems(path, repair), *_shard_problems(path, repair)]
        if repair:
            files.remove_stale_temporaries(path)
            remove_dead_markers(path)
    if repair:
        files.remove_stale_temporaries(activations_folder(folder))
    return problems


def _entry_folders(folder: Path | None) -> list[Path]:
    root = activations_folder(folder)
    paths = root.iterdir() if root.is_dir() else []
    return sorted(path for path in paths if path.is_dir() and not files.is_temporary(path))


def _bytes(path: Path) -> int:
    total = 0
    for file in path.glob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def _entry(path: Path) -> CacheEntry:
    try:
        manifest = read_manifest(path)
        name, rows = _model_name(manifest["key"].get("model")), manifest["rows"]
    except CutawayError:
        name, rows = "?", 0
    return CacheEntry(
        digest=path.name,
        model=name,
        rows=rows,
        columns=_columns(path),
        bytes=_bytes(path),
        used=datetime.fromtimestamp(last_used(path)),
        busy=in_use(path),
        path=path,
    )


def _columns(path: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted({name for shard in find_shards(path) for name in shard.columns}))
    except Corrupt:
        return ()


def _model_name(model: object) -> str:
    """The model's name in a key, where `model` is a name or a mapping with `name`."""
    return str(model.get("name", "?") if isinstance(model, dict) else model or "?")


def _by_prefix(known: list[CacheEntry], digest: str) -> CacheEntry:
    matches = [entry for entry in known if digest and entry.digest.startswith(digest)]
    if not matches:
        raise Missing(f"No entry {digest!r} in the cache. `cutaway cache ls` lists them.")
    if len(matches) > 1:
        raise BadSpec(f"{digest!r} matches {len(matches)} entries. Give more digits.")
    if matches[0].busy:
        raise BadSpec(f"Entry {digest!r} is in use by a running process. Wait for it to end.")
    return matches[0]


def _entries_to_evict(oldest_first: list[CacheEntry], max_bytes: int) -> list[CacheEntry]:
    """The least recently used entries whose removal makes the rest fit."""
    total, chosen = sum(entry.bytes for entry in oldest_first), []
    for entry in oldest_first:
        if total <= max_bytes:
            break
        if not entry.busy:
            chosen.append(entry)
            total -= entry.bytes
    return chosen


def _evict(chosen: Iterable[CacheEntry]) -> list[CacheEntry]:
    return [entry for entry in chosen if _evict_one(entry.path)]


def _evict_one(path: Path) -> bool:
    """Remove an entry unless it is in use; whether it was removed."""
    if in_use(path):
        return False
    aside = files.temporary_path(path)
    with files.disk_errors(path):
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
    # Check again: a process may have opened it before the rename.
    if in_use(aside):
        with suppress(OSError):
            aside.rename(path)
            return False
    files.discard(aside)
    return True


def _manifest_problems(path: Path, repair: bool) -> list[CacheProblem]:
    try:
        read_manifest(path)
    except CutawayError as error:
        # A process killed at its first step leaves an empty folder, which is harmless.
        if isinstance(error, Missing) and not list(path.glob("shard-*.json")):
            return []
        if repair and isinstance(error, Corrupt):
            # It is written again when the table is opened next.
            files.discard(path / "manifest.json")
        return [CacheProblem(path / "manifest.json", str(error))]
    return []


def _shard_problems(path: Path, repair: bool) -> list[CacheProblem]:
    problems = []
    for described in sorted(path.glob("shard-*.json")):
        try:
            shard = read_shard(described)
            # A shard that was not fetched from a remote store can't be damaged here.
            if shard is not None and not shard.is_remote:
                shard.check()
        except Corrupt as error:
            problems.append(CacheProblem(described.with_suffix(".safetensors"), str(error)))
            if repair:
                files.discard(described)
                files.discard(described.with_suffix(".safetensors"))
    for orphan in orphan_shards(path):
        problems.append(
            CacheProblem(orphan, f"{str(orphan)!r} has no {sidecar_path(orphan).name}.")
        )
        if repair:
            files.discard(orphan)
    return problems
