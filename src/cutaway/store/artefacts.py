"""Artefacts of runs: tensors in a safetensors file, their description in a JSON file next to it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.errors import BadSpec, Corrupt, CutawayError, Missing
from cutaway.core.lookup import lookup
from cutaway.store import files, tensors
from cutaway.store.files import Chunk
from cutaway.store.versions import versions

if TYPE_CHECKING:
    from torch import Tensor

_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Artefact:
    """A file of named tensors, read one at a time, with its metadata."""

    path: Path
    meta: dict[str, Any]
    names: tuple[str, ...]
    versions: dict[str, str] = field(default_factory=dict)
    """The packages that it was made with; empty in files of older versions."""

    def tensor(self, name: str) -> "Tensor":
        """One tensor, as a view of the file; UnknownName lists the known names."""
        lookup(dict.fromkeys(self.names), name, kind=f"tensor in {self.path.name}")
        return tensors.map_tensor(self.path, name)

    def tensors(self, prefix: str = "") -> "dict[str, Tensor]":
        """The tensors whose names begin with a prefix, by the rest of their names.

        They are views of the file: they take memory only while it is free, and stay valid when the
        file is removed.
        """
        names = [name for name in self.names if name.startswith(prefix)]
        found = tensors.map_tensors(self.path, names)
        return {name.removeprefix(prefix): value for name, value in found.items()}


def save_artefact(path: Path, values: Mapping[str, "Tensor"], meta: Mapping[str, Any]) -> Path:
    """Write tensors to `path`, then `meta` to the JSON next to it."""
    path = check_output_free(path)
    description = description_path(path)
    layout = tensors.TensorLayout({name: [value] for name, value in values.items()})
    files.remove_stale_temporaries(path.parent)
    files.check_free_space(path.parent, sum(value.nbytes for value in values.values()))
    # An old description must not be combined with new tensors.
    with files.disk_errors(path):
        description.unlink(missing_ok=True)
    # Computed while writing: another process may replace the file a moment later.
    total = _Checksum()
    files.write_atomic(path, total.over(layout.chunks()))
    digest = {"sha256": total.sha256.hexdigest(), "bytes": total.bytes}
    files.write_sealed(description, {"meta": meta, "versions": versions(), **digest})
    return path


class _Checksum:
    """Checksum and size of the chunks that pass through."""

    def __init__(self) -> None:
        self.sha256, self.bytes = hashlib.sha256(), 0

    def over(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.sha256.update(chunk)
            self.bytes += len(chunk)
            yield chunk


def load_artefact(path: Path, *, verify: bool = True) -> Artefact:
    """The artefact at `path`; Missing, BadData or Corrupt if it is incomplete or damaged."""
    path = Path(path)
    with files.disk_errors(path):
        if not path.is_file():
            raise Missing(f"No artefact {str(path)!r}.")
        tensors.refuse_pickle(path)
    content = _description(check_artefact_name(path))
    size = path.stat().st_size
    if size != content["bytes"]:
        raise Corrupt(f"{str(path)!r} has {size} bytes, expected {content['bytes']}.")
    if verify and files.sha256_file(path) != content["sha256"]:
        raise Corrupt(f"{str(path)!r} fails its checksum. Make it again.")
    made = content.get("versions", {})
    return Artefact(path, content["meta"], tensors.tensor_names(path), made)


def run_of_artefact(path: Path) -> str | None:
    """The address of the run that wrote an artefact; None if it is unknown or damaged."""
    try:
        meta: Any = load_artefact(path, verify=False).meta
    except CutawayError:
        return None
    found = meta.get("run") if isinstance(meta, dict) else None
    return found if isinstance(found, str) else None


def copy_artefact(source: Path, path: Path) -> Path:
    """Copy an artefact to `path`; its description is written last."""
    path, described = check_output_free(path), description_path(source)
    files.remove_stale_temporaries(path.parent)
    files.check_free_space(path.parent, source.stat().st_size)
    with files.disk_errors(path):
        description_path(path).unlink(missing_ok=True)
        with source.open("rb") as handle:
            files.write_atomic(path, iter(lambda: handle.read(1 << 20), b""))
        files.write_atomic(description_path(path), described.read_bytes())
    return path


def description_path(path: Path) -> Path:
    """The path of an artefact's JSON file."""
    return path.with_suffix(".json")


def check_artefact_name(path: Path) -> Path:
    """The path; BadSpec unless it ends in .safetensors."""
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise BadSpec(f"An artefact's file ends in {_SUFFIX}, got {str(path)!r}.")
    return path


def check_output_free(path: Path) -> Path:
    """The path; BadSpec if its description would overwrite a JSON file of something else.

    Also called before the work starts, so that the work is not lost.
    """
    described = description_path(check_artefact_name(path))
    with files.disk_errors(described):
        # Next to an artefact's file it belongs to that file, though it may be damaged.
        alone = described.is_file() and not Path(path).exists()
        if alone and files.SEAL not in described.read_bytes():
            raise BadSpec(
                f"The description of {str(path)!r} would overwrite {described.name}, which belongs "
                "to something else. Choose another name."
            )
    return Path(path)


def _description(path: Path) -> dict[str, Any]:
    """The contents of an artefact's JSON file."""
    described = description_path(path)
    if not described.is_file():
        raise Missing(
            f"{str(path)!r} has no {described.name} next to it: it was not finished, or the two "
            "files were separated. Copy both, or make it again."
        )
    content = files.read_sealed(described)
    if not {"meta", "sha256", "bytes"} <= set(content):
        raise Corrupt(f"{str(described)!r} is not the description of an artefact.")
    return content
