"""Shards: a safetensors file with many columns for some rows, and a sidecar JSON file.

The sidecar is written last; a shard without one is ignored. It has a checksum for every tensor,
so that reading a column reads and verifies only that column's bytes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import Corrupt, Missing
from cutaway.store import files, remote, tensors
from cutaway.store.process_suffix import HOUR

if TYPE_CHECKING:
    from torch import Tensor

RowNumbers = NDArray[np.int64]

# Columns may have any name; the prefix distinguishes them from ROWS and LENGTHS.
_COLUMN, ROWS, LENGTHS = "column/", "rows", "lengths"

_REMEDY = "Remove it with `cutaway cache verify --repair`; its rows are then computed again."

_TORCH_DTYPES = {code: name for name, code in tensors.DTYPES.items()}


@dataclass(frozen=True)
class ColumnInfo:
    """Type and shape of a column; `shape` is that of one row (of one token if ragged)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    ragged: bool


@dataclass(frozen=True)
class Shard:
    """A shard, as described by its sidecar."""

    path: Path
    bytes: int
    ragged: bool
    entries: Mapping[str, Mapping[str, Any]]
    _verified: set[tuple[str, int, int]] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def columns(self) -> dict[str, ColumnInfo]:
        """The columns in this shard."""
        return {
            name.removeprefix(_COLUMN): ColumnInfo(
                name.removeprefix(_COLUMN),
                _TORCH_DTYPES[entry["dtype"]],
                tuple(entry["shape"][1:]),
                self.ragged,
            )
            for name, entry in self.entries.items()
            if name.startswith(_COLUMN)
        }

    @cached_property
    def rows(self) -> RowNumbers:
        """The row numbers; for a remote shard only this tensor is fetched."""
        data = remote.fetch_tensor(self.path, ROWS, self.entries[ROWS]["sha256"])
        if data is not None:
            return np.frombuffer(data, dtype="<i8").astype(np.int64)
        return self._tensor(ROWS).numpy().copy()

    @cached_property
    def lengths(self) -> RowNumbers:
        """Number of tokens in each row of a ragged shard."""
        return self._tensor(LENGTHS).numpy().copy()

    def block(self, column: str) -> "Tensor":
        """A column's values as a view of the file, verified on the first read."""
        return self._tensor(_COLUMN + column)

    def check(self) -> None:
        """Raise Corrupt unless every tensor passes its checksum now."""
        self._verified.clear()
        for name in self.entries:
            self._tensor(name)

    @property
    def is_remote(self) -> bool:
        """Whether it is in a remote store and has not been fetched."""
        return not self.path.exists() and remote.remote_of(self.path) is not None

    @property
    def dropped(self) -> bool:
        """Whether it has been removed meanwhile; its sidecar is removed first."""
        return not sidecar_path(self.path).exists()

    def drop(self) -> None:
        """Remove the shard, its sidecar first, so that it is never incomplete."""
        files.discard(sidecar_path(self.path))
        files.discard(self.path)

    def _tensor(self, name: str) -> "Tensor":
        size, changed = _check_size(self.path, self.bytes)
        tensor = tensors.map_tensor(self.path, name)
        seen = (name, size, changed)
        if seen not in self._verified:
            self._compare(name, tensor)
            self._verified.add(seen)
        return tensor

    def _compare(self, name: str, tensor: "Tensor") -> None:
        entry = self.entries[name]
        form = [tensors.DTYPES.get(tensors.dtype_name(tensor)), list(tensor.shape)]
        digest = hashlib.sha256(tensors.raw_bytes(tensor)).hexdigest()
        if form != [entry["dtype"], entry["shape"]] or digest != entry["sha256"]:
            raise Corrupt(f"{str(self.path)!r} fails its checksum at {name!r}. {_REMEDY}")


def write_shard(
    folder: Path,
    rows: Sequence[RowNumbers],
    columns: Mapping[str, Sequence["Tensor"]],
    lengths: Sequence[RowNumbers] = (),
) -> Path:
    """Write a new shard from blocks; returns the path of its file."""
    import torch

    blocks = {_COLUMN + name: list(parts) for name, parts in columns.items()}
    blocks[ROWS] = [torch.from_numpy(part) for part in rows]
    if lengths:
        blocks[LENGTHS] = [torch.from_numpy(part) for part in lengths]
    layout = tensors.TensorLayout(blocks)
    path = folder / f"shard-{uuid4().hex}.safetensors"
    files.check_free_space(folder, sum(part.nbytes for parts in blocks.values() for part in parts))
    files.write_atomic(path, layout.chunks())
    described = files.sealed_bytes(_description(path, layout, bool(lengths)))
    # A remote store gets the shard and its sidecar before the local sidecar is written.
    remote.send(path)
    remote.send(sidecar_path(path), described)
    files.write_atomic(sidecar_path(path), described)
    return path


def _description(path: Path, layout: tensors.TensorLayout, ragged: bool) -> dict[str, Any]:
    entries = {
        name: {"dtype": entry["dtype"], "shape": entry["shape"], "sha256": layout.sha256[name]}
        for name, entry in layout.entries().items()
    }
    return {"bytes": path.stat().st_size, "ragged": ragged, "tensors": entries}


def sidecar_path(path: Path) -> Path:
    """The path of a shard's sidecar."""
    return path.with_suffix(".json")


def is_sidecar(name: str) -> bool:
    """Whether it is the file name of a sidecar."""
    return name.startswith("shard-") and name.endswith(".json")


def find_shards(folder: Path) -> list[Shard]:
    """The shards of a folder, always in the same order; Corrupt names a damaged one."""
    found = sorted(folder.glob("shard-*.json")) if folder.is_dir() else []
    shards = (read_shard(path) for path in found)
    return [shard for shard in shards if shard is not None]


def read_shard(described: Path) -> Shard | None:
    """The shard of a sidecar; None if it was just removed."""
    try:
        state = described.stat()
        return _parse(described, state.st_size, state.st_mtime_ns)
    except (FileNotFoundError, Missing):
        return None


# Sidecars don't change; size and time are in the key in case one was replaced.
@lru_cache(maxsize=4096)
def _parse(described: Path, size: int, changed: int) -> Shard:
    del size, changed
    content = files.read_sealed(described)
    try:
        return Shard(
            described.with_suffix(".safetensors"),
            content["bytes"],
            content["ragged"],
            content["tensors"],
        )
    except KeyError as error:
        raise Corrupt(f"{str(described)!r} lacks {error}. {_REMEDY}") from None


def _check_size(path: Path, expected: int) -> tuple[int, int]:
    """Size and modification time of a file of the expected size; Corrupt otherwise."""
    try:
        state = path.stat()
    except FileNotFoundError:
        if not remote.fetch(path):
            raise Corrupt(f"{str(path)!r} is missing. {_REMEDY}") from None
        state = path.stat()
    if state.st_size != expected:
        raise Corrupt(f"{str(path)!r} has {state.st_size} bytes, expected {expected}. {_REMEDY}")
    return state.st_size, state.st_mtime_ns


def orphan_shards(folder: Path) -> list[Path]:
    """Shard files without a sidecar that are older than an hour."""
    import time

    now = time.time()
    return [
        path
        for path in folder.glob("shard-*.safetensors")
        if not sidecar_path(path).exists() and now - path.stat().st_mtime > HOUR
    ]
