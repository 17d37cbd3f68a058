"""A model handle opens the same model in another process, or refuses."""

from dataclasses import replace

import pytest

from cutaway.core.errors import Mismatch
from cutaway.extract.model_handle import (
    WORKING_MEMORY,
    make_model_handle,
    random_twin_handle,
    training_resources,
)
from cutaway.models.load import open_model, random_twin
from cutaway.recipe.options import RunOptions
from tests.tiny import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny("gpt2", tmp_path_factory.mktemp("engine") / "gpt2"))


@pytest.fixture(scope="module")
def lm(model):
    return open_model(model, check=False)


def test_a_model_is_opened_once_per_process_and_only_if_it_is_the_same(lm):
    handle = make_model_handle(lm, RunOptions())
    assert handle.open() is handle.open()
    assert handle.open().digest == lm.digest
    with pytest.raises(Mismatch, match="other weights on a worker"):
        replace(handle, digest="0" * 64).open()


def test_a_model_given_as_an_object_has_no_handle(lm):
    assert make_model_handle(lm, RunOptions(), {"mine": lm}) is None
    assert make_model_handle(lm, RunOptions(), {"other": object()}) is not None


def test_a_folder_is_named_by_its_full_path(lm, model, monkeypatch, tmp_path):
    from pathlib import Path

    monkeypatch.chdir(Path(model).parent)
    handle = make_model_handle(replace(lm, name="gpt2"), RunOptions())
    monkeypatch.chdir(tmp_path)
    assert handle.name == str(Path(model).resolve())


def test_the_handle_of_a_twin_opens_the_same_random_weights(lm):
    twin = random_twin(lm, seed=4)
    handle = random_twin_handle(make_model_handle(lm, RunOptions()), twin, 4)
    assert handle.open().digest == twin.digest
    assert random_twin_handle(None, twin, 4) is None


def test_resources_grow_with_the_weights_and_their_copies(lm):
    handle = make_model_handle(lm, RunOptions(device="cpu"))
    assert handle.resources("local").memory == 4 * lm.parameters + WORKING_MEMORY
    half = replace(handle, dtype="bfloat16")
    assert half.resources("local").memory == 2 * lm.parameters + WORKING_MEMORY
    training = training_resources("local", RunOptions(device="cpu"), lm, copies=4)
    assert training.memory == 16 * lm.parameters + WORKING_MEMORY
    assert training.gpus == 0
