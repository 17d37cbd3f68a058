"""Save runs atomically, find them by address, and query all of them.

runs/<method>/<address>/result.json     written last: a run is finished if this file exists
runs/<method>/<address>/rows.parquet    one row per measured value
runs/<method>/<address>/samples.parquet, splits.parquet     see `cutaway.store.samples`
runs/<method>/<address>.partial/        pieces of an unfinished run (`Progress`)

`runs` may be a URL: finished runs are uploaded, result.json last, and fetched when needed;
unfinished runs stay on this machine.
"""

import errno
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.console import json_text
from cutaway.core.errors import BadData, BadSpec, CutawayError, Missing, RunError
from cutaway.core.lookup import suggestion
from cutaway.store import files as disk
from cutaway.store import remote
from cutaway.store.progress import PARTIAL_SUFFIX, Progress
from cutaway.store.records import (
    RESULT_FIELDS,
    RESULT_FILE,
    ROWS_FILE,
    Record,
    read_if_intact,
    read_record,
    run_file_path,
    run_folder,
)
from cutaway.store.run_index import Gathered, gather
from cutaway.store.run_places import RunPlace, run_places

if TYPE_CHECKING:
    import polars as pl


__all__ = ["Progress", "Record", "Runs", "find_record", "run_progress", "results", "save_record"]

# Tries to rename while other processes finish the same run.
_ATTEMPTS = 20


@dataclass(frozen=True)
class Runs:
    """All finished runs of a folder, newest first."""

    folder: Path

    def __iter__(self) -> Iterator[Record]:
        """The records, newest first, each read when it is needed."""
        return self._read(self._listed.keys)

    def __len__(self) -> int:
        """Number of readable runs."""
        return len(self._listed.keys)

    @property
    def broken(self) -> list[tuple[Path, str]]:
        """(folder, reason) of runs whose result.json is invalid."""
        return list(self._listed.broken)

    def newest(self, count: int | None, method: str | None = None) -> tuple[list[Record], int]:
        """The newest runs (all for None), of all methods or of one, and how many there are."""
        keys = [k for k in self._listed.keys if method in (None, k.partition("/")[0])]
        return list(islice(self._read(keys), count)), len(keys)

    def get(self, address: str) -> Record:
        """The run whose address begins with `address` (`probe/3f2a` works too)."""
        method, _, digits = address.rpartition("/")
        places = self._places
        found = [p for p in places if p.address.startswith(digits) and method in ("", p.method)]
        matches = list(_readable(found))
        exact = [record for record in matches if record.address == digits]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if not matches:
            hint = suggestion(digits, [place.address for place in places])
            raise Missing(
                f"No run {address!r} in {str(self.folder)!r}. {hint}`cutaway ls` lists them."
            )
        names = ", ".join(f"{r.method}/{r.address}" for r in matches[:5])
        raise BadSpec(f"{address!r} matches {len(matches)} runs: {names}. Give more digits.")

    def query(self, sql: str, *, strict: bool = False) -> "pl.DataFrame":
        """Run one SELECT over `runs`, `scores`, `rows`, `samples` and `splits` only.

        Damaged tables are left out with a message; with `strict` they are an error.
        """
        from cutaway.store.query import query

        return query(self.folder, sql, strict=strict)

    def brief_texts(self, method: str | None = None) -> Iterator[str]:
        """`Record.brief` of each run as JSON text, newest first."""
        lines = self._listed.frame(("method", "address", "brief"))
        for name, address, brief in lines.iter_rows():
            if method in (None, name):
                path = json_text(str(self.folder / name / address))
                yield brief.removesuffix("\n}") + f',\n  "path": {path}\n}}'

    def _read(self, keys: Iterable[str]) -> Iterator[Record]:
        fresh = self._listed.fresh
        for key in keys:
            if key in fresh:
                yield fresh[key].record
            else:
                yield from _readable([RunPlace(self.folder, *key.split("/"))])

    @cached_property
    def _places(self) -> list[RunPlace]:
        return run_places(self.folder)

    @cached_property
    def _listed(self) -> Gathered:
        from cutaway.store.query_tables import RUNS

        return gather(self.folder, RUNS)


def _readable(places: Iterable[RunPlace]) -> Iterator[Record]:
    """The runs in these folders; without those that aren't finished, or damaged."""
    for place in places:
        with suppress(CutawayError):
            yield read_record(place.path)


def results(folder: Path | str = "runs") -> Runs:
    """The finished runs in a folder; none if it doesn't exist."""
    folder = remote.local_folder(folder)
    with disk.disk_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise BadSpec(f"--runs must be a folder, {str(folder)!r} is a file.")
    return Runs(folder)


def find_record(folder: Path | str, method: str, address: str) -> Record | None:
    """The finished run if all its files are intact, else None."""
    return _upload(read_if_intact(run_folder(folder, method, address)))


def run_progress(folder: Path | str, method: str, address: str) -> Progress:
    """The finished pieces of an unfinished run; `save_record` removes them."""
    target = run_folder(folder, method, address)
    return Progress(target.with_name(target.name + PARTIAL_SUFFIX))


def find_finished_elsewhere(folder: Path | str, method: str, address: str) -> Record | None:
    """The run if another process has finished it meanwhile; removes its pieces."""
    record = find_record(folder, method, address)
    if record is not None:
        run_progress(folder, method, address).discard()
    return record


def save_record(
    folder: Path | str,
    *,
    rows: "pl.DataFrame",
    files: Mapping[str, Path | bytes] | None = None,
    **fields: Any,
) -> Record:
    """Save a run atomically; if it was already saved, the first one is kept and returned.

    `fields` are those of result.json, see `RESULT_FIELDS`; `spec` may be a Spec or a mapping.
    """
    target = run_folder(folder, fields["method"], fields["address"])
    record = read_if_intact(target)
    if record is None:
        content = {name: fields[name] for name in RESULT_FIELDS}
        if not isinstance(fields["spec"], Mapping):
            content["spec"] = fields["spec"].model_dump(mode="json")
        content["created"] = datetime.now(UTC).isoformat()
        held = {ROWS_FILE: parquet_bytes(rows), **_check_file_names(files or {})}
        record = _publish(target, content, held)
    _upload(record)
    run_progress(folder, fields["method"], fields["address"]).discard()
    disk.remove_stale_temporaries(target.parent)
    return record


def _upload(record: Record | None) -> Record | None:
    """Upload a run to a remote store: its files first, result.json last."""
    store = None if record is None else remote.remote_of(record.path)
    if record is not None and store is not None and RESULT_FILE not in store.names(record.path):
        for name in (*record.files, RESULT_FILE):
            store.send(record.path.joinpath(*run_file_path(name).parts))
    return record


def parquet_bytes(rows: "pl.DataFrame") -> bytes:
    """A tidy table as parquet bytes; equal tables give equal bytes."""
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested() or dtype.is_object()]
    taken = [name for name in rows.columns if name.lower() in ("method", "address")]
    if nested or taken:
        raise BadData(
            f"Rows must be tidy: one value per cell, and columns other than method and address "
            f"(those are reserved). Got: {', '.join(nested + taken)}."
        )
    buffer = io.BytesIO()
    # One chunk and fixed row groups, so that the bytes don't depend on how the table was built.
    rows.rechunk().write_parquet(buffer, compression="zstd", row_group_size=1 << 18)
    return buffer.getvalue()


def _check_file_names(files: Mapping[str, Path | bytes]) -> Mapping[str, Path | bytes]:
    for name in files:
        if str(run_file_path(name)) in (RESULT_FILE, ROWS_FILE):
            raise BadSpec(f"A file of a run can't be called {name!r}: that name is reserved.")
    return files


def _publish(target: Path, fields: dict[str, Any], contents: Mapping[str, Path | bytes]) -> Record:
    """Write everything to a temporary folder, then rename it."""
    temporary = disk.temporary_path(target)
    disk.check_free_space(target.parent, sum(_size(content) for content in contents.values()))
    with disk.disk_errors(target):
        disk.make_folder(target.parent)
        try:
            temporary.mkdir()
            sums = {
                name: _write_run_file(temporary, name, content)
                for name, content in contents.items()
            }
            disk.write_synced(temporary / RESULT_FILE, disk.sealed_bytes({**fields, "files": sums}))
            disk.sync_folder(temporary)
            return _rename(temporary, target)
        finally:
            disk.discard(temporary)


def _write_run_file(folder: Path, name: str, content: Path | bytes) -> dict[str, Any]:
    """Write one file of a run; returns its checksum and size."""
    path = folder.joinpath(*run_file_path(name).parts)
    disk.make_folder(path.parent)
    disk.write_synced(path, content if isinstance(content, bytes) else _file_chunks(content))
    return {"sha256": disk.sha256_file(path), "bytes": path.stat().st_size}


def _file_chunks(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while piece := handle.read(size):
            yield piece


def _size(content: Path | bytes) -> int:
    if isinstance(content, bytes):
        return len(content)
    if not content.is_file():
        raise Missing(f"No file {str(content)!r} to save with the run.")
    return content.stat().st_size


def _rename(temporary: Path, target: Path) -> Record:
    """Rename the temporary folder to `target`, unless another process saved the run first."""
    for _ in range(_ATTEMPTS):
        try:
            temporary.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            record = read_if_intact(target)
            if record is not None:
                return record
            disk.remove_folder(target)
        else:
            disk.sync_folder(target.parent)
            return read_record(target)
    raise RunError(f"{str(target)!r} is being changed by other processes. Repeat the command.")
