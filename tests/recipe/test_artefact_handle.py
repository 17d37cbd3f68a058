"""A saved artefact has its metadata and is identified by its bytes."""

import torch

from cutaway.recipe.artefact_handle import SavedArtefact
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.files import sha256_file


def test_metadata_and_digest_are_those_of_the_file(tmp_path) -> None:
    path = tmp_path / "maps.safetensors"
    save_artefact(path, {"x": torch.ones(2)}, {"model": "m"})
    saved = SavedArtefact(load_artefact(path))
    assert saved.meta == {"model": "m"}
    assert saved.digest == sha256_file(path)
    save_artefact(path, {"x": torch.zeros(2)}, {"model": "m"})
    assert SavedArtefact(load_artefact(path)).digest != saved.digest
