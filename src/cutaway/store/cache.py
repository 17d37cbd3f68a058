"""The activation cache as a whole: what is in it, how big it is, what may go."""

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
from cutaway.store.process_tokens import DAY
from cutaway.store.shards import find_shards, orphan_shards, read_shard, sidecar_path
from cutaway.store.usage_markers import in_use, last_used, remove_dead_markers

DEFAULT_GB = 20.0


@dataclass(frozen=True)
class CacheEntry:
    """One shelf as the cache lists it; `model` is `?` where the manifest can't be read."""

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
        held = f"{self.rows} rows, {len(self.columns)} columns, {self.bytes / 2**20:,.1f} MB"
        return f"{self.digest[:12]}  {self.model}  {held}, used {used}"


@dataclass(frozen=True)
class CacheProblem:
    """A file of the cache that can't be relied on."""

    path: Path
    reason: str


def list_entries(folder: Path | None = None) -> list[CacheEntry]:
    """All shelves, the most recently used first."""
    found = [_entry(path) for path in _entry_folders(folder)]
    # Another process may drop a shelf while it is being described here.
    there = [entry for entry in found if entry.path.is_dir()]
    return sorted(there, key=lambda entry: (entry.used, entry.digest), reverse=True)


def cache_size(folder: Path | None = None) -> int:
    """The bytes all shelves take on the disk."""
    return sum(_bytes(path) for path in _entry_folders(folder))


def prune(
    *,
    max_bytes: int | None = None,
    older_than_days: float | None = None,
    digest: str | None = None,
    folder: Path | None = None,
) -> list[CacheEntry]:
    """Drops shelves, the least recently used first, and returns what was dropped.

    `digest` (a prefix will do) drops one shelf, `older_than_days` those not used for so long,
    `max_bytes` as many as are needed to get below it. A shelf in use is never dropped.
    """
    rules = [max_bytes is not None, older_than_days is not None, digest is not None]
    if sum(rules) != 1:
        raise BadSpec("prune needs exactly one of max_bytes, older_than_days, digest.")
    for rule, value in (("max_bytes", max_bytes), ("older_than_days", older_than_days)):
        # What is no amount would drop every shelf.
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
    """Keeps the cache below its limit (`CUTAWAY_CACHE_GB`, 20 by default); what it dropped."""
    allowed = cache_limit() if limit_bytes is None else limit_bytes
    files.remove_stale_temporaries(activations_folder(folder))
    # Asked after every extraction, and mostly there is room: sizes alone say so.
    return prune(max_bytes=allowed, folder=folder) if cache_size(folder) > allowed else []


def cache_limit() -> int:
    """The cache's limit in bytes; BadSpec when `CUTAWAY_CACHE_GB` is no size."""
    said = os.environ.get("CUTAWAY_CACHE_GB", "").strip() or str(DEFAULT_GB)
    try:
        size_gb = float(said)
    except ValueError:
        size_gb = -1.0
    if not 0 <= size_gb < 1e9:
        raise BadSpec(f"CUTAWAY_CACHE_GB must be a number of gigabytes >= 0, got {said!r}.")
    return int(size_gb * 1e9)


def verify(repair: bool = False, folder: Path | None = None) -> list[CacheProblem]:
    """Every file that fails its checksum; with `repair` those are dropped and made again later."""
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
    found = root.iterdir() if root.is_dir() else []
    return sorted(path for path in found if path.is_dir() and not files.is_temporary(path))


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
    """The model's name in a key: `model` is its name, or a mapping with `name`."""
    return str(model.get("name", "?") if isinstance(model, dict) else model or "?")


def _by_prefix(known: list[CacheEntry], digest: str) -> CacheEntry:
    found = [entry for entry in known if digest and entry.digest.startswith(digest)]
    if not found:
        raise Missing(f"No shelf {digest!r} in the cache. `cutaway cache ls` lists them.")
    if len(found) > 1:
        raise BadSpec(f"{digest!r} fits {len(found)} shelves. Give more of its digits.")
    if found[0].busy:
        raise BadSpec(f"Shelf {digest!r} is in use by a running process. Wait for it to end.")
    return found[0]


def _entries_to_evict(oldest_first: list[CacheEntry], max_bytes: int) -> list[CacheEntry]:
    """The least recently used shelves without which the rest fits."""
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
    """Whether the shelf is gone now; one that is in use stays."""
    if in_use(path):
        return False
    aside = files.temporary_path(path)
    with files.disk_errors(path):
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
    # Looked at again: a process may have opened it between the look and the rename.
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
        # A process killed at its first step leaves a folder with nothing in it: no harm done.
        if isinstance(error, Missing) and not list(path.glob("shard-*.json")):
            return []
        if repair and isinstance(error, Corrupt):
            # The key that opens the shelf the next time writes it again.
            files.discard(path / "manifest.json")
        return [CacheProblem(path / "manifest.json", str(error))]
    return []


def _shard_problems(path: Path, repair: bool) -> list[CacheProblem]:
    problems = []
    for described in sorted(path.glob("shard-*.json")):
        try:
            shard = read_shard(described)
            # What was never fetched from a store elsewhere can't be damaged here.
            if shard is not None and not shard.far:
                shard.check()
        except Corrupt as error:
            problems.append(CacheProblem(described.with_suffix(".safetensors"), str(error)))
            if repair:
                files.discard(described)
                files.discard(described.with_suffix(".safetensors"))
    for orphan in orphan_shards(path):
        problems.append(
            CacheProblem(orphan, f"{str(orphan)!r} never got its {sidecar_path(orphan).name}.")
        )
        if repair:
            files.discard(orphan)
    return problems
