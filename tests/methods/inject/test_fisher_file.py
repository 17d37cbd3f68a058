"""Fisher files: whose they are, and which weights they were estimated on."""

import hashlib

import pytest
import torch

from cutaway.core.errors import BadData, Mismatch, Missing
from cutaway.methods.inject.fisher_file import load_fisher, save_fisher, tensor_checksums
from cutaway.models.lm import model_facts
from cutaway.store.artefacts import save_artefact


def write(lm, path, **meta):
    values = {name: torch.ones_like(p) for name, p in lm.params().items()}
    known = {
        "model": model_facts(lm) | {"dtype": lm.dtype},
        "data": {"name": "docs"},
        "objective": "lm",
        "weights": tensor_checksums(lm.params()),
    }
    return save_fisher(path, values, {**known, **meta})


def test_a_file_gives_back_its_tensors_and_its_name(tiny_lm, tmp_path) -> None:
    lm = tiny_lm("llama")
    fisher = load_fisher(write(lm, tmp_path / "f.safetensors"), lm)
    assert fisher.name == "docs (lm)"
    assert set(fisher.tensors()) == set(lm.params())
    assert all(bool((value == 1).all()) for value in fisher.tensors().values())


def test_another_models_file_is_refused(tiny_lm, tmp_path) -> None:
    path = write(tiny_lm("llama"), tmp_path / "f.safetensors")
    with pytest.raises(Mismatch, match="is the Fisher of"):
        load_fisher(path, tiny_lm("gpt2"))


def test_a_missing_file_and_an_artefact_of_another_kind_are_refused(tmp_path) -> None:
    with pytest.raises(Missing, match="No Fisher at"):
        load_fisher(tmp_path / "no.safetensors")
    save_artefact(tmp_path / "maps.safetensors", {"a": torch.ones(1)}, {"kind": "maps"})
    with pytest.raises(BadData, match="is no Fisher"):
        load_fisher(tmp_path / "maps.safetensors")


def test_initial_weights_must_be_those_of_the_file(tiny_lm, tmp_path) -> None:
    lm = tiny_lm("llama")
    fisher = load_fisher(write(lm, tmp_path / "f.safetensors"))
    weights = {name: value.clone() for name, value in lm.params().items()}
    fisher.need_initial_weights(weights, "mine")
    name = next(iter(weights))
    weights[name] += 1e-3
    with pytest.raises(Mismatch, match=f"'mine' starts with another '{name}'"):
        fisher.need_initial_weights(weights, "mine")


def test_weights_of_another_precision_and_older_files_are_not_compared(tiny_lm, tmp_path) -> None:
    lm = tiny_lm("llama")
    fisher = load_fisher(write(lm, tmp_path / "f.safetensors"))
    halves = {name: value.bfloat16() + 1 for name, value in lm.params().items()}
    fisher.need_initial_weights(halves, "mine")
    old = load_fisher(write(lm, tmp_path / "old.safetensors", weights={}))
    old.need_initial_weights({name: value + 1 for name, value in lm.params().items()}, "mine")


def test_a_checksum_is_that_of_the_float32_values() -> None:
    value = torch.tensor([1.0, -2.5])
    expected = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    kinds = {"a": value, "b": value.double(), "c": value.bfloat16()}
    assert set(tensor_checksums(kinds).values()) == {expected}
    assert tensor_checksums({"a": value + 1})["a"] != expected
