"""A finished run on disk: `result.json`, `rows.parquet` and artefacts."""

import hashlib
import io
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from cutaway.core.errors import BadData, BadSpec, Corrupt, Missing, NoRoom
from cutaway.core.lookup import lookup
from cutaway.core.parquet import check_parquet_size
from cutaway.store import files, remote
from cutaway.store.artefacts import Artefact, load_artefact
from cutaway.store.progress import PARTIAL_SUFFIX

if TYPE_CHECKING:
    import polars as pl

RESULT_FILE, ROWS_FILE = "result.json", "rows.parquet"
SAMPLES_FILE, SPLITS_FILE = "samples.parquet", "splits.parquet"

# The fields of result.json and their types.
RESULT_FIELDS: dict[str, type | tuple[type, ...]] = {
    "method": str,
    "address": str,
    "spec": dict,
    "summary": dict,
    "baselines": (dict, list),
    "model": (dict, list),
    "data": (dict, list),
    "seed": (int, list, type(None)),
    "versions": dict,
    "seconds": (int, float),
    "peak_memory_mb": (int, float, type(None)),
    "command": str,
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=-]{0,119}")


@dataclass(frozen=True)
class Record:
    """A finished run on disk."""

    method: str
    address: str
    spec: dict[str, Any]
    summary: dict[str, Any]
    baselines: Any
    model: Any
    data: Any
    seed: Any
    versions: dict[str, Any]
    seconds: float
    peak_memory_mb: float | None
    command: str
    path: Path
    created: str = ""
    files: dict[str, Any] = field(default_factory=dict)
    """SHA-256 and size of every other file of the run, by name."""

    @cached_property
    def rows(self) -> "pl.DataFrame":
        """The table in rows.parquet; Corrupt if the file has changed."""
        return self._table(ROWS_FILE)

    @cached_property
    def samples(self) -> "pl.DataFrame":
        """The table in samples.parquet; Missing if the run has kept no samples."""
        if SAMPLES_FILE not in self.files:
            raise Missing(
                f"Run {self.address} has no samples. Make them with: {self.command} --samples"
            )
        return self._table(SAMPLES_FILE)

    @cached_property
    def splits(self) -> "pl.DataFrame":
        """The rows that were used and for what; Missing if an older version made the run."""
        if SPLITS_FILE not in self.files:
            raise Missing(f"Run {self.address} has no {SPLITS_FILE}.")
        return self._table(SPLITS_FILE)

    def _table(self, name: str) -> "pl.DataFrame":
        path = self.path / name
        data = _read_bytes(path)
        _check_digest(path, hashlib.sha256(data).hexdigest(), self.files.get(name))
        return _parquet_frame(path, data)

    def file(self, name: str) -> Path:
        """The path of a file of this run, after checking its checksum."""
        lookup(self.files, name, kind=f"file of run {self.address}")
        path = self.path.joinpath(*run_file_path(name).parts)
        if not path.is_file() and not remote.fetch(path):
            raise Missing(f"{str(path)!r} is missing. Make it again with: {self.command}")
        _check_digest(path, files.sha256_file(path), self.files[name])
        return path

    def artefact(self, name: str) -> Artefact:
        """The tensors of this run called `name`, read one at a time."""
        return load_artefact(self.file(name), verify=False)

    def plain(self) -> dict[str, Any]:
        """The record as JSON-ready values."""
        values = {name: getattr(self, name) for name in (*RESULT_FIELDS, "created", "files")}
        return {**values, "path": str(self.path)}

    def brief(self) -> dict[str, Any]:
        """The fields shown in a listing of runs."""
        names = ("method", "address", "seed", "seconds", "created", "summary")
        values = {name: getattr(self, name) for name in names}
        described = {"model": join_names(self.model), "data": join_names(self.data)}
        return {**values, **described, "path": str(self.path)}


def join_names(described: Any) -> str:
    """The name of a described model or dataset, or the names in a list of them."""
    many = described if isinstance(described, list) else [described]
    return ", ".join(str(one.get("name", "?") if isinstance(one, dict) else one) for one in many)


def run_folder(folder: Path | str, method: str, address: str) -> Path:
    """The folder of a run; BadSpec for names that would be outside of `folder`."""
    for label, name in (("method", method), ("address", address)):
        ours = files.is_temporary(Path(str(name))) or str(name).endswith(PARTIAL_SUFFIX)
        if not _NAME.fullmatch(str(name)) or ours:
            raise BadSpec(
                f"The {label} {name!r} can't name a folder. Use letters, digits and _ . + = - only."
            )
    return remote.local_folder(folder) / method / address


def run_file_path(name: str) -> PurePosixPath:
    """The relative path of a file in a run; BadSpec if it would be outside of the run."""
    path = PurePosixPath(name)
    if not path.parts or not all(_NAME.fullmatch(part) for part in path.parts):
        raise BadSpec(
            f"{name!r} can't name a file of a run. Use letters, digits and _ . + = - only, and / "
            "between folders."
        )
    return path


def read_record(folder: Path) -> Record:
    """The run in a folder; Missing if it is not finished, Corrupt if result.json is invalid."""
    path = folder / RESULT_FILE
    if not files.file_exists(path):
        remote.fetch(path, files.read_json)
    content = files.read_sealed(path, needs_seal=False)
    wrong = [
        name for name, kind in RESULT_FIELDS.items() if not isinstance(content.get(name), kind)
    ]
    if wrong:
        raise Corrupt(f"{str(path)!r} has missing or invalid fields: {', '.join(wrong)}.")
    if (content["method"], content["address"]) != (folder.parent.name, folder.name):
        raise Corrupt(
            f"{str(path)!r} belongs to {content['method']}/{content['address']}. Was it moved?"
        )
    sums = content.get("files", {})
    fields: dict[str, Any] = {name: content.get(name) for name in RESULT_FIELDS}
    return Record(
        **fields,
        path=folder,
        created=str(content.get("created", "")),
        files=sums if isinstance(sums, dict) else {},
    )


def read_if_intact(folder: Path) -> Record | None:
    """The run in a folder if all its files are intact; None otherwise."""
    try:
        record = read_record(folder)
        for name in record.files:
            record.file(name)
    except (Missing, Corrupt, BadSpec):
        return None
    return record


def _read_bytes(path: Path) -> bytes:
    if not path.is_file():
        remote.fetch(path)
    with files.disk_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise Corrupt(f"{str(path)!r} is missing, though its run is finished.") from None


def _check_digest(path: Path, digest: str, expected: Any) -> None:
    """Raise Corrupt unless the digest is the recorded one; hand-written runs record none."""
    if isinstance(expected, dict) and expected.get("sha256") != digest:
        raise Corrupt(f"{str(path)!r} fails its checksum. Remove its folder and repeat the run.")


def _parquet_frame(path: Path, data: bytes) -> "pl.DataFrame":
    """Read a parquet file; Corrupt if it is damaged or too large.

    Read with pyarrow: on some damaged files Polars allocates too much and ends the process.
    """
    import polars as pl
    import pyarrow
    import pyarrow.parquet
    from psutil import virtual_memory

    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
        check_parquet_size(repr(str(path)), file.metadata, virtual_memory().available)
        # A small table is read faster than a thread starts.
        table = file.read(use_threads=False)
        # Invalid UTF-8 makes Polars panic, so pyarrow validates first; schema metadata is dropped.
        table.validate(full=True)
        bare = pyarrow.Table.from_arrays(table.columns, names=table.column_names)
        return pl.DataFrame(pl.from_arrow(bare))
    except (BadData, NoRoom) as error:
        raise Corrupt(str(error)) from None
    except (pyarrow.ArrowException, pl.exceptions.PolarsError, OSError, ValueError,
            pl.exceptions.PanicException) as error:  # fmt: skip
        raise Corrupt(f"{str(path)!r} is not readable as parquet: {error}.") from None
