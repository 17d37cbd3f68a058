"""A saved artefact (maps, Fisher information) with its metadata and digest."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cutaway.store.artefacts import Artefact
from cutaway.store.files import sha256_file


class InFile:
    """What was loaded from a file; from Python it may be given where the file's name is asked."""

    file: Path | None
    """The file; None for what was made or changed since."""


@dataclass(frozen=True)
class SavedArtefact(InFile):
    """An artefact on disk; its tensors are views of the file."""

    artefact: Artefact

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata saved with it: the model, the data, the options."""
        return self.artefact.meta

    @property
    def file(self) -> Path:  # type: ignore[override]
        """The file of its tensors."""
        return self.artefact.path

    @cached_property
    def digest(self) -> str:
        """The sha256 of the tensors' file."""
        return sha256_file(self.artefact.path)
