"""Tests of artefacts."""

import json
import os
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from cutaway.core.errors import BadData, BadSpec, Corrupt, Missing, UnknownName
from cutaway.store.artefacts import description_path, load_artefact, save_artefact
from tests.store.samples import DISK

VALUES = {"map.7.12": torch.rand(3, 4), "bias": torch.rand(4).bfloat16(), "scale": torch.tensor(2)}
META = {"model": "gpt2", "r2": 0.5, "layers": [7, 12]}


@pytest.fixture
def path(tmp_path):
    return save_artefact(tmp_path / "deep" / "jump.safetensors", VALUES, META)


@pytest.mark.parametrize("verify", [True, False])
def test_an_artefact_comes_back_as_it_was_saved(path, verify):
    artefact = load_artefact(path, verify=verify)
    assert artefact.meta == META
    assert set(artefact.names) == set(VALUES)
    for name, value in VALUES.items():
        assert artefact.tensor(name).dtype == value.dtype
        assert torch.equal(artefact.tensor(name), value)


def test_the_same_artefact_is_the_same_bytes(tmp_path, path):
    again = save_artefact(tmp_path / "again.safetensors", VALUES, META)
    assert again.read_bytes() == path.read_bytes()
    assert description_path(again).read_bytes() == description_path(path).read_bytes()


def test_any_safetensors_reader_can_read_it(path):
    assert torch.equal(load_file(path)["map.7.12"], VALUES["map.7.12"])


def test_saving_again_replaces_it_whole(path):
    save_artefact(path, {"only": torch.zeros(2)}, {"new": True})
    artefact = load_artefact(path)
    assert (artefact.names, artefact.meta) == (("only",), {"new": True})
    assert len(list(path.parent.iterdir())) == 2


def test_an_unknown_tensor_gets_a_suggestion(path):
    with pytest.raises(UnknownName, match=r"Did you mean 'bias'\?"):
        load_artefact(path).tensor("bais")


@DISK
@given(st.data())
def test_a_flipped_bit_or_a_cut_is_corrupt_wherever_it_is(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "flip.safetensors"
    save_artefact(path, VALUES, META)
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole = whole[:place]
    else:
        whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    with pytest.raises((Corrupt, BadData), match=r"flip\.safetensors"):
        load_artefact(path)


@pytest.mark.parametrize("fields", [{}, {"meta": {}}, {"sha256": "0", "bytes": 3}])
def test_a_description_without_its_fields_is_corrupt(path, fields):
    description_path(path).write_text(json.dumps(fields))
    with pytest.raises(Corrupt, match=r"jump\.json"):
        load_artefact(path)


def test_tensors_without_their_description_are_missing(path):
    description_path(path).unlink()
    with pytest.raises(Missing, match=r"jump\.json"):
        load_artefact(path)


def test_no_file_is_missing(tmp_path):
    with pytest.raises(Missing, match="nothing"):
        load_artefact(tmp_path / "nothing.safetensors")


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


@pytest.mark.parametrize("name", ["skill.safetensors", "skill.pt", "skill.bin"])
@pytest.mark.parametrize(
    "write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))]
)
def test_a_pickle_is_refused_and_its_code_never_runs(tmp_path, monkeypatch, name, write):
    monkeypatch.chdir(tmp_path)
    write({"x": _Evil()}, tmp_path / name)
    with pytest.raises(BadData, match="pickle"):
        load_artefact(tmp_path / name)
    assert not (tmp_path / "owned").exists()


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(BadSpec, match=r"\.safetensors"):
        save_artefact(tmp_path / "x.bin", VALUES, META)


def test_a_file_of_the_users_is_never_written_over(tmp_path):
    mine = tmp_path / "corpus.json"
    mine.write_text('[{"text": "mine"}]')
    with pytest.raises(BadSpec, match=r"corpus\.json.*another name"):
        save_artefact(tmp_path / "corpus.safetensors", {"w": torch.ones(2)}, {})
    assert mine.read_text() == '[{"text": "mine"}]'
    assert not (tmp_path / "corpus.safetensors").exists()
