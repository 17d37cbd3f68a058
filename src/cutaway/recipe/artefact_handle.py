"""What the files of fitted things have in common: what they say of themselves, who they are."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cutaway.store.artefacts import Artefact
from cutaway.store.files import sha256_file


@dataclass(frozen=True)
class SavedArtefact:
    """A fitted thing on disk; its tensors are views on the file."""

    artefact: Artefact

    @property
    def meta(self) -> dict[str, Any]:
        """What its maker wrote beside it: the model, the data, the options."""
        return self.artefact.meta

    @cached_property
    def digest(self) -> str:
        """The identity of the numbers."""
        return sha256_file(self.artefact.path)
