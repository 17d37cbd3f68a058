"""A saved artefact (maps, Fisher information) with its metadata and digest."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cutaway.store.artefacts import Artefact
from cutaway.store.files import sha256_file


@dataclass(frozen=True)
class SavedArtefact:
    """An artefact on disk; its tensors are views of the file."""

    artefact: Artefact

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata saved with it: the model, the data, the options."""
        return self.artefact.meta

    @cached_property
    def digest(self) -> str:
        """The sha256 of the tensors' file."""
        return sha256_file(self.artefact.path)
