"""From a name to a folder, with help for the name that isn't one."""

import shutil
import socket
from pathlib import Path

import pytest

from cutaway.core.errors import Missing, UnknownName
from cutaway.models.checkpoint import looks_like_path
from cutaway.models.load import open_model
from tests.models.breaking import refusal


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("smolm2-135m", Missing, "Did you mean 'smollm2-135m'?"),
        ("no-such-org/no-such-model", Missing, "offline is on"),
        ("./no/such/folder", Missing, "There is no folder './no/such/folder'"),
        ("~nosuch/model", Missing, "There is no folder '~nosuch/model'"),
        ("base+~nosuch/adapter", Missing, "base"),
        ("what is this?", UnknownName, "is not a model name"),
        ("", UnknownName, "is not a model name"),
    ],
)
def test_an_unknown_model_is_refused_with_help(name, error, said) -> None:
    with pytest.raises(error) as caught:
        open_model(name, offline=True)
    assert said in str(caught.value)


def test_a_folder_with_a_typo_is_met_with_its_neighbour(copy) -> None:
    folder = copy("gpt2")
    assert "Did you mean 'gpt2'?" in refusal(str(folder.parent / "gtp2"))


def test_offline_no_connection_is_tried(monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert "offline is on" in refusal("org/model", offline=True)


def test_offline_a_folder_opens_without_a_connection(folder_of, monkeypatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
    assert open_model(folder_of("bert"), offline=True).family == "bert"


def test_a_model_in_the_hub_cache_opens_offline_with_its_recorded_digest(
    folder_of, tmp_path, monkeypatch
) -> None:
    from huggingface_hub import constants

    from cutaway.models.digests import recorded_digest

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = hub_cache(folder_of("gpt2"), tmp_path, "org/tiny")
    lm = open_model("org/tiny", offline=True)
    assert lm.name == "org/tiny"
    assert recorded_digest(snapshot / "model.safetensors") == "5" * 64
    assert "at revision 'v9'" in refusal("org/tiny", revision="v9", offline=True)


def hub_cache(folder: Path, cache: Path, name: str) -> Path:
    """The folder laid out as the hub's cache lays it out: blobs and links to them."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / ("a" * 40)
    for part in (snapshot, root / "blobs", root / "refs"):
        part.mkdir(parents=True)
    (root / "refs" / "main").write_text("a" * 40)
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = root / "blobs" / ("5" * 64 if file.suffix == ".safetensors" else f"{number:040d}")
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def test_a_file_is_no_model(copy) -> None:
    assert "is a file" in refusal(copy() / "config.json")


def hub_answers(monkeypatch, error: Exception) -> None:
    def answer(*_, **__):
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", answer)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("RepositoryNotFoundError", UnknownName, "Unknown model 'org/model'"),
        ("RevisionNotFoundError", UnknownName, "no revision 'v9'"),
        ("GatedRepoError", Missing, "is gated"),
    ],
)
def test_what_the_hub_answers_is_passed_on_in_one_line(error, kind, said, monkeypatch) -> None:
    from huggingface_hub import errors

    kind_of_answer = getattr(errors, error)
    # Made without its own __init__, which wants a whole HTTP response.
    hub_answers(monkeypatch, kind_of_answer.__new__(kind_of_answer))
    with pytest.raises(kind, match=said):
        open_model("org/model", revision="v9")


class ReadError(Exception):
    """What HTTP libraries raise when the line is cut: no OSError."""


@pytest.mark.parametrize("error", [ConnectionError("no route"), ReadError("cut")])
def test_a_hub_that_cannot_be_reached_is_said_so(error, monkeypatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub_answers(monkeypatch, error)
    assert f"the hub can't be reached ({type(error).__name__})" in refusal("org/model")


@pytest.mark.parametrize(
    ("name", "path"),
    [("gpt2", False), ("org/model", False), ("./here", True), ("~/m", True), ("a/b/c", True)],
)
def test_paths_and_hub_ids_are_told_apart(name, path) -> None:
    assert looks_like_path(name) is path
