"""The activation cache: tables of activations, identified by everything that can change them.

An activation table is a folder named by the digest of its key (weights, tokenizer, template,
rows, ...). It contains

    manifest.json                the key itself, so the table can be read without model or data
    shard-<id>.safetensors       some columns of some rows, never changed once written
    shard-<id>.json              written last, with checksums: a shard without it is ignored
    used, in-use-*               when it was last read, and which processes use it

Any number of processes may write at the same time and may be killed at any moment: every shard
has its own file, and rows written twice are equal.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.core.digest import digest_json
from cutaway.core.errors import Corrupt, Mismatch, Missing
from cutaway.core.lookup import suggestion
from cutaway.store import files, gather_rows, remote
from cutaway.store.activation_writer import ActivationWriter
from cutaway.store.home import cache_folder
from cutaway.store.shards import ColumnInfo, RowNumbers, Shard, find_shards, is_sidecar
from cutaway.store.usage_markers import InUseMarker, mark_used, remove_dead_markers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Dtype = torch.dtype | str | None

SHARD_BYTES = 64 << 20
FORMAT = 1


@dataclass(frozen=True)
class ActivationTable:
    """The activations of one model on one set of rows: columns such as `7/last`."""

    folder: Path
    key: Mapping[str, Any]
    rows: int
    _marker: InUseMarker = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its place in the store, since every machine has its own mirror."""
        store = remote.remote_of(self.folder)
        if store is None:
            return _activation_table, (self.folder, self.key, self.rows)
        inner = self.folder.relative_to(store.root).as_posix()
        return _remote_activation_table, (store.url, inner, self.key, self.rows)

    def columns(self) -> dict[str, ColumnInfo]:
        """The columns that are stored for all rows."""
        self._fetch_sidecars()
        shards = self._shards()
        known = {name: column for shard in shards for name, column in shard.columns.items()}
        covered = _coverage(shards, list(known), self.rows)
        return {name: column for name, column in known.items() if covered[name].all()}

    def covered(self, columns: Iterable[str]) -> NDArray[np.bool_]:
        """For each row, whether all these columns are stored."""
        self._fetch_sidecars()
        masks = _coverage(self._shards(), list(columns), self.rows).values()
        covered: NDArray[np.bool_] = np.all([np.ones(self.rows, dtype=bool), *masks], axis=0)
        return covered

    def writer(self, shard_bytes: int = SHARD_BYTES) -> ActivationWriter:
        """A writer for this table; creates the folder and its manifest."""
        _write_manifest(self.folder, self.key, self.rows)
        self._marker.create()
        files.remove_stale_temporaries(self.folder)
        remove_dead_markers(self.folder)
        return ActivationWriter(self.folder, self.rows, shard_bytes)

    def read(
        self, column: str, rows: ArrayLike | None = None, *, dtype: "Dtype" = "float32"
    ) -> "Tensor":
        """The column's values (n, ...) for these rows, in this order; all rows by default.

        Floats are converted to `dtype` unless it is None; integers are returned as stored.
        """
        shards, wanted = self._having(column, ragged=False), self._wanted(rows)
        self._need_rows(column, shards, wanted)
        return gather_rows.gather_dense(shards, column, wanted, self.rows, dtype)

    def read_ragged(
        self, column: str, rows: ArrayLike | None = None, *, dtype: "Dtype" = "float32"
    ) -> tuple["Tensor", "Tensor"]:
        """Values (tokens, ...) and offsets (n + 1): row i has values[offsets[i]:offsets[i+1]]."""
        shards, wanted = self._having(column, ragged=True), self._wanted(rows)
        self._need_rows(column, shards, wanted)
        return gather_rows.gather_ragged(shards, column, wanted, self.rows, dtype)

    def mapped(self, column: str) -> Iterator[tuple[RowNumbers, "Tensor"]]:
        """(row numbers, values) shard by shard, as views of the files; each row once."""
        return gather_rows.stream_dense(self._having(column, ragged=False), column, self.rows)

    def mapped_ragged(self, column: str) -> Iterator[tuple[RowNumbers, RowNumbers, "Tensor"]]:
        """(row numbers, lengths, values) shard by shard, as views of the files; each row once."""
        return gather_rows.stream_ragged(self._having(column, ragged=True), column, self.rows)

    def _fetch_sidecars(self) -> None:
        """Fetch the descriptions of shards that other machines wrote to a remote store."""
        remote.fetch_sealed(self.folder, is_sidecar)

    def _shards(self) -> list[Shard]:
        return find_shards(self.folder)

    def _having(self, column: str, *, ragged: bool) -> list[Shard]:
        """The shards with this column; Missing with a suggestion if there are none."""
        shards = self._shards()
        is_remote = remote.remote_of(self.folder) is not None
        if is_remote and not _coverage(shards, [column], self.rows)[column].all():
            self._fetch_sidecars()
            shards = self._shards()
        having = [shard for shard in shards if column in shard.columns]
        if not having:
            known = sorted({name for shard in shards for name in shard.columns})
            raise Missing(
                f"No column {column!r} in {str(self.folder)!r}. {suggestion(column, known)}"
                f"Known: {', '.join(known) or 'none'}."
            )
        _check_one_form(having, column, ragged)
        mark_used(self.folder)
        return having

    def _wanted(self, rows: ArrayLike | None) -> RowNumbers:
        wanted = np.arange(self.rows) if rows is None else np.asarray(rows, dtype=np.int64)
        wrong = wanted[(wanted < 0) | (wanted >= self.rows)]
        if len(wrong):
            raise Mismatch(f"Row number {int(wrong[0])} is not in 0..{self.rows - 1}.")
        return wanted

    def _need_rows(self, column: str, shards: list[Shard], wanted: RowNumbers) -> None:
        lacking = int((~_coverage(shards, [column], self.rows)[column][wanted]).sum())
        if lacking:
            raise Missing(
                f"Column {column!r} lacks {lacking} of {len(wanted)} rows in "
                f"{str(self.folder)!r}. Repeat the command that writes it to continue."
            )


def open_activations(
    key: Mapping[str, Any], rows: int, folder: Path | None = None
) -> ActivationTable:
    """The activation table of a key; nothing is written before `writer` is called."""
    plain = files.jsonable(key)
    table = _activation_table(activations_folder(folder) / digest_json(plain), plain, rows)
    manifest = _manifest_or_none(table.folder)
    if manifest is not None and manifest["rows"] != rows:
        raise Mismatch(f"{str(table.folder)!r} has {manifest['rows']} rows, expected {rows}.")
    return table


def load_activations(folder: Path) -> ActivationTable:
    """The activation table in a folder, by its manifest; Corrupt or Missing without one."""
    content = read_manifest(folder)
    return _activation_table(folder, content["key"], content["rows"])


def activations_folder(folder: Path | None = None) -> Path:
    """The folder of all activation tables."""
    return cache_folder() / "activations" if folder is None else Path(folder)


def _activation_table(folder: Path, key: Mapping[str, Any], rows: int) -> ActivationTable:
    table = ActivationTable(folder, key, rows, InUseMarker(folder))
    table._marker.create()
    return table


def _remote_activation_table(
    url: str, inner: str, key: Mapping[str, Any], rows: int
) -> ActivationTable:
    return _activation_table(remote.local_folder(url) / inner, key, rows)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Format, key and number of rows of the table in a folder; Missing or Corrupt otherwise."""
    path = folder / "manifest.json"
    if not files.file_exists(path):
        remote.fetch(path, files.read_json)
    content: dict[str, Any] = files.read_json(path)
    fields = isinstance(content, dict) and {"format", "key", "rows"} <= set(content)
    if not fields or digest_json(content["key"]) != folder.name:
        raise Corrupt(f"{str(path)!r} doesn't belong to this folder.")
    if content["format"] != FORMAT:
        raise Mismatch(
            f"{str(path)!r} has format {content['format']!r}, this version reads {FORMAT}. "
            "Update cutaway, or remove it with `cutaway cache prune`."
        )
    return content


def _manifest_or_none(folder: Path) -> dict[str, Any] | None:
    """The manifest; None if it is absent or damaged, since it can be written again."""
    try:
        return read_manifest(folder)
    except (Missing, Corrupt):
        return None


def _write_manifest(folder: Path, key: Mapping[str, Any], rows: int) -> None:
    if _manifest_or_none(folder) is None:
        content = files.json_bytes({"format": FORMAT, "rows": rows, "key": key})
        remote.send(folder / "manifest.json", content)
        files.write_atomic(folder / "manifest.json", content)


def _coverage(shards: list[Shard], columns: list[str], rows: int) -> dict[str, NDArray[np.bool_]]:
    """For each column, a mask of the rows that are stored."""
    holders = {c: tuple(i for i, s in enumerate(shards) if c in s.columns) for c in columns}
    # Most columns are in the same shards, so masks are computed per group of shards.
    masks = {}
    for group in set(holders.values()):
        masks[group] = np.zeros(rows, dtype=bool)
        for number in group:
            masks[group][_row_numbers(shards[number], rows)] = True
    return {column: masks[group] for column, group in holders.items()}


def _row_numbers(shard: Shard, rows: int) -> RowNumbers:
    """The shard's row numbers; none if another process has just removed it."""
    try:
        return gather_rows.row_numbers(shard, rows)
    except Corrupt:
        if shard.dropped:
            return np.zeros(0, dtype=np.int64)
        raise


def _check_one_form(shards: list[Shard], column: str, ragged: bool) -> None:
    forms = {shard.columns[column] for shard in shards}
    if len(forms) > 1:
        raise Mismatch(
            f"Column {column!r} has several types or shapes: {sorted(map(str, forms))!r}."
        )
    if forms.pop().ragged != ragged:
        verbs = "read_ragged or mapped_ragged" if not ragged else "read or mapped"
        raise Mismatch(f"Column {column!r} is {'dense' if ragged else 'ragged'}: use {verbs}.")
