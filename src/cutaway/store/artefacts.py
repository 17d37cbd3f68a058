"""What a run makes for later use: tensors as safetensors, what they are as JSON beside them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.errors import BadSpec, Corrupt, CutawayError, Missing
from cutaway.core.lookup import lookup
from cutaway.store import files, tensors
from cutaway.store.files import Chunk

if TYPE_CHECKING:
    from torch import Tensor

_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Artefact:
    """A file of named tensors, read one at a time, and what they are."""

    path: Path
    meta: dict[str, Any]
    names: tuple[str, ...]

    def tensor(self, name: str) -> "Tensor":
        """One tensor, as a view on the file; UnknownName lists what there is."""
        lookup(dict.fromkeys(self.names), name, kind=f"tensor in {self.path.name}")
        return tensors.map_tensor(self.path, name)


def save_artefact(path: Path, values: Mapping[str, "Tensor"], meta: Mapping[str, Any]) -> Path:
    """Tensors at `path` and `meta` in the JSON beside it, which is written last."""
    path = check_output_free(path)
    description = description_path(path)
    layout = tensors.TensorLayout({name: [value] for name, value in values.items()})
    files.remove_stale_temporaries(path.parent)
    files.check_free_space(path.parent, sum(value.nbytes for value in values.values()))
    # An older description must not stand beside new tensors: without one there is no artefact.
    with files.disk_errors(path):
        description.unlink(missing_ok=True)
    # Summed up as it is written: the file at `path` may be another process's a moment later.
    total = _Checksum()
    files.write_atomic(path, total.over(layout.chunks()))
    digest = {"sha256": total.sha256.hexdigest(), "bytes": total.bytes}
    files.write_sealed(description, {"meta": meta, **digest})
    return path


class _Checksum:
    """The checksum and size of what passes through."""

    def __init__(self) -> None:
        self.sha256, self.bytes = hashlib.sha256(), 0

    def over(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.sha256.update(chunk)
            self.bytes += len(chunk)
            yield chunk


def load_artefact(path: Path, *, verify: bool = True) -> Artefact:
    """The artefact at `path`; Missing, BadData or Corrupt when it isn't a whole one."""
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
    return Artefact(path, content["meta"], tensors.tensor_names(path))


def run_of_artefact(path: Path) -> str | None:
    """The address of the run that wrote an artefact; None when it isn't whole or doesn't say."""
    try:
        meta: Any = load_artefact(path, verify=False).meta
    except CutawayError:
        return None
    found = meta.get("run") if isinstance(meta, dict) else None
    return found if isinstance(found, str) else None


def copy_artefact(source: Path, path: Path) -> Path:
    """The artefact at `path` too; its description is written last."""
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
    """Where the JSON of an artefact is."""
    return path.with_suffix(".json")


def check_artefact_name(path: Path) -> Path:
    """The path; BadSpec unless an artefact may be called so."""
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise BadSpec(f"An artefact's file ends in {_SUFFIX}, got {str(path)!r}.")
    return path


def check_output_free(path: Path) -> Path:
    """The path; BadSpec when an artefact there would be written over a JSON file that is not one's.

    Asked before the work as well: to refuse it at the end would cost the work.
    """
    described = description_path(check_artefact_name(path))
    with files.disk_errors(described):
        # Beside an artefact's own file it is that one's, damaged perhaps.
        alone = described.is_file() and not Path(path).exists()
        if alone and files.SEAL not in described.read_bytes():
            raise BadSpec(
                f"{str(path)!r} would be described in {described.name}, which is there and is no "
                "artefact's description. Choose another name."
            )
    return Path(path)


def _description(path: Path) -> dict[str, Any]:
    """The sealed JSON of an artefact, with all its fields."""
    described = description_path(path)
    if not described.is_file():
        raise Missing(
            f"{str(path)!r} has no {described.name} beside it: it was never finished, or the "
            "two were parted. Copy both, or make it again."
        )
    content = files.read_sealed(described)
    if not {"meta", "sha256", "bytes"} <= set(content):
        raise Corrupt(f"{str(described)!r} is not the description of an artefact.")
    return content
