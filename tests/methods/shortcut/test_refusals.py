"""What shortcut refuses, when, and in which words; matrices of others come in safely or not."""

import pickle

import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, Mismatch, Missing, UnknownName
from cutaway.core.textset import TextSet
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.import_reference import read_tensor
from cutaway.methods.shortcut.maps import load_maps
from cutaway.models.load import open_model
from tests.models.breaking import Trap
from tests.tiny import toy_language, toy_model

TEXTS = TextSet("toy", tuple(toy_language(80)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shortcut")


@pytest.fixture(scope="module")
def toy(folder):
    return open_model(str(toy_model(folder / "toy")))


@pytest.fixture(scope="module")
def fitted(folder, toy):
    """Plain maps of the toy model, and the run that made them."""
    result = shortcut.fit(
        model=toy, text=TEXTS, out=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
        quiet=True,
    )  # fmt: skip
    return result, load_maps(folder / "maps.safetensors", toy)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (UnknownName, "Unknown map kind", {"kinds": "matt"}),
        (Missing, "shortcut fit --model", {"shortcut": "nowhere.safetensors"}),
        (BadData, "two tokens or more", {"text": TextSet("short", ("a", "b"))}),
    ],
)
def test_bad_requests_are_told(folder, toy, fitted, error, message, options) -> None:
    given = {"model": toy, "text": TEXTS, "shortcut": str(folder / "maps.safetensors")} | options
    with pytest.raises(error, match=message):
        shortcut.eval(**given, runs=str(folder / "runs"), quiet=True)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("rank must be between 1 and the width 32, got 33", {"rank": 33}),
        ("ridge must be 'auto' or a number of at least 0", {"ridge": -1}),
        ("ends in .safetensors, got 'maps.pt'", {"out": "maps.pt"}),
    ],
)
def test_a_fit_that_cannot_be_is_refused_before_any_work(
    folder, toy, message, options, monkeypatch
) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.fit.take_sample", None)
    with pytest.raises(BadSpec, match=message):
        shortcut.fit(model=toy, text=TEXTS, runs=str(folder / "runs"), quiet=True, **options)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (r"Exit layer 3 is out of range.*0\.\.2", {"exit_layers": 3, "draft": 1}),
        (r"Exit layer 9 is out of range", {"exit_layers": 9, "mode": "exit"}),
        ("Unknown map kind", {"kind": "matt"}),
        ("has no maps of kind ahead: fit it with --drafts", {"kind": "ahead"}),
        ("more than the context", {"max_new_tokens": 9999}),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    folder, toy, fitted, message, options, monkeypatch
) -> None:
    monkeypatch.setattr("cutaway.methods.shortcut.generate.plain_generate", None)
    with pytest.raises((BadData, BadSpec, UnknownName), match=message):
        shortcut.generate(
            model=toy, shortcut=str(folder / "maps.safetensors"), prompt="so i", quiet=True,
            **{"max_new_tokens": 4} | options,
        )  # fmt: skip


def test_maps_of_another_model_are_refused(folder, fitted, tiny_lm) -> None:
    with pytest.raises(Mismatch, match="was fitted on"):
        load_maps(folder / "maps.safetensors", tiny_lm("llama"))
    with pytest.raises(BadSpec, match=r"within layers 0\.\.3"):
        fitted[1].jump(2, 9)


def test_the_references_matrices_come_in_through_a_safe_loader(folder, tiny_lm) -> None:
    lm, source = tiny_lm("llama"), folder / "reference"
    source.mkdir()
    matrix = torch.randn(32, 32)
    torch.save(matrix, source / "1_3.pt")
    maps = shortcut.import_maps(source, model=lm, out=folder / "theirs.safetensors")
    x = torch.randn(5, 32)
    torch.testing.assert_close(maps.jump(1, 3)(x), (matrix @ x.T).T)
    turned = torch.randn(32, 32).T
    (source / "0_2.pickle").write_bytes(pickle.dumps(turned, protocol=4))
    (source / "p1_1_2.pickle").write_bytes(pickle.dumps(matrix, protocol=4))
    (source / "p1_2_3.pickle").write_bytes(b"an addition: never read")
    maps = shortcut.import_maps(source, model=lm, out=folder / "theirs.safetensors")
    torch.testing.assert_close(maps.jump(0, 2)(x), (turned @ x.T).T)
    torch.testing.assert_close(maps.part(2, "attn")(x), (matrix @ x.T).T)
    (source / "0_3.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadData, match="not a plain tensor file"):
        shortcut.import_maps(source, model=lm, out=folder / "theirs.safetensors")
    with pytest.raises(Missing, match="i_j"):
        shortcut.import_maps(folder / "runs", model=lm, out=folder / "theirs.safetensors")


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_a_pickled_matrix_is_taken_apart_and_never_run(protocol, tmp_path) -> None:
    path = tmp_path / "1_2.pickle"
    for matrix in (torch.randn(300, 300), torch.randn(8, 8).T, torch.randn(9, 4)[5:].double()):
        path.write_bytes(pickle.dumps(matrix, protocol=protocol))
        assert torch.equal(read_tensor(path), matrix)
    for other in ([torch.ones(2, 2), torch.ones(2, 2)], torch.ones(3), [torch.ones(2, 2), 7]):
        path.write_bytes(pickle.dumps(other, protocol=protocol))
        with pytest.raises(ValueError, match="something other than one matrix"):
            read_tensor(path)
    trap = tmp_path / "trap"
    path.write_bytes(pickle.dumps([Trap(str(trap)), torch.ones(2, 2)], protocol=protocol))
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        read_tensor(path)
    assert not trap.exists()
