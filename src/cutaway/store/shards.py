"""One shard: a safetensors file of many columns for some rows, and its sealed sidecar.

The sidecar is written last: a shard without one doesn't exist. It carries a checksum for every
tensor, so that reading one column touches, and verifies, that column's bytes alone.
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
from cutaway.store.process_tokens import HOUR

if TYPE_CHECKING:
    from torch import Tensor

RowNumbers = NDArray[np.int64]

# Columns may have any name, so they get a prefix that keeps them apart from ROWS and LENGTHS.
_COLUMN, ROWS, LENGTHS = "column/", "rows", "lengths"

_REMEDY = "Drop it with `cutaway cache verify --repair`; its rows are then computed again."

_TORCH_DTYPES = {code: name for name, code in tensors.DTYPES.items()}


@dataclass(frozen=True)
class ColumnInfo:
    """What a column holds: `shape` is one row's shape (of one token's, when ragged)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    ragged: bool


@dataclass(frozen=True)
class Shard:
    """A whole shard, as its sidecar describes it."""

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
        """The row numbers, one per row of each dense column; of a far shard they come alone."""
        far = remote.fetch_tensor(self.path, ROWS, self.entries[ROWS]["sha256"])
        if far is not None:
            return np.frombuffer(far, dtype="<i8").astype(np.int64)
        return self._tensor(ROWS).numpy().copy()

    @cached_property
    def lengths(self) -> RowNumbers:
        """How many tokens each row of a ragged shard has."""
        return self._tensor(LENGTHS).numpy().copy()

    def block(self, column: str) -> "Tensor":
        """A column's values as a view on the file, verified on the first read."""
        return self._tensor(_COLUMN + column)

    def check(self) -> None:
        """Corrupt unless every tensor of the file passes its checksum now."""
        self._verified.clear()
        for name in self.entries:
            self._tensor(name)

    @property
    def far(self) -> bool:
        """Whether it lies in a store elsewhere and wasn't fetched yet."""
        return not self.path.exists() and remote.remote_of(self.path) is not None

    @property
    def dropped(self) -> bool:
        """Whether it has been taken away since it was found: its sidecar goes first."""
        return not sidecar_path(self.path).exists()

    def drop(self) -> None:
        """The shard is gone, sidecar first, so that it is never half there."""
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
    """A new shard in `folder`, made of blocks in their order; the path of its file."""
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
    # A store elsewhere has the shard first, then its sidecar; only then does it count here.
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
    """Where a shard's description is."""
    return path.with_suffix(".json")


def is_sidecar(name: str) -> bool:
    """Whether a file's name is that of a shard's description."""
    return name.startswith("shard-") and name.endswith(".json")


def find_shards(folder: Path) -> list[Shard]:
    """The whole shards of a folder, always in the same order; Corrupt names a damaged one."""
    found = sorted(folder.glob("shard-*.json")) if folder.is_dir() else []
    shards = (read_shard(path) for path in found)
    return [shard for shard in shards if shard is not None]


def read_shard(described: Path) -> Shard | None:
    """The shard of a sidecar; None when both were dropped a moment ago."""
    try:
        state = described.stat()
        return _parse(described, state.st_size, state.st_mtime_ns)
    except (FileNotFoundError, Missing):
        return None


# Sidecars never change once written; size and time in the key see to those that did anyway.
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
    """Size and time of a file that has its full size; Corrupt otherwise."""
    try:
        state = path.stat()
    except FileNotFoundError:
        if not remote.fetch(path):
            raise Corrupt(f"{str(path)!r} is gone. {_REMEDY}") from None
        state = path.stat()
    if state.st_size != expected:
        raise Corrupt(f"{str(path)!r} has {state.st_size} bytes, expected {expected}. {_REMEDY}")
    return state.st_size, state.st_mtime_ns


def orphan_shards(folder: Path) -> list[Path]:
    """Shard files that never got their sidecar and have been silent for an hour."""
    import time

    now = time.time()
    return [
        path
        for path in folder.glob("shard-*.safetensors")
        if not sidecar_path(path).exists() and now - path.stat().st_mtime > HOUR
    ]
