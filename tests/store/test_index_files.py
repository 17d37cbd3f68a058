"""Tests of the files of an index."""

import os
import stat
import subprocess
import sys

import pytest

from cutaway.store import index_files
from cutaway.store.process_suffix import owner_token


@pytest.fixture(autouse=True)
def key(tmp_path, monkeypatch) -> bytes:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    return index_files.read_key(make=True)


def test_the_key_is_made_once_and_for_this_user_only(key, tmp_path) -> None:
    path = tmp_path / "home" / index_files.KEY_FILE
    assert len(key) == index_files.KEY_BYTES and index_files.read_key(make=True) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_looking_for_an_index_makes_no_key(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "new"))
    assert index_files.index_folder(tmp_path) is None
    assert not (tmp_path / "new").exists()


def test_a_key_of_the_wrong_length_is_none(tmp_path) -> None:
    (tmp_path / "home" / index_files.KEY_FILE).write_bytes(b"short")
    assert index_files.read_key(make=True) is None
    assert not index_files.write_file(tmp_path / "x", b"content")


@pytest.mark.parametrize("content", [b"", b"x", bytes(3_000_000)])
def test_what_is_written_is_read(tmp_path, content) -> None:
    assert index_files.write_file(tmp_path / "folder" / "x", content)
    assert bytes(index_files.read_file(tmp_path / "folder" / "x")) == content


@pytest.mark.parametrize("place", [0, 31, 32, 40, -1])
def test_a_changed_byte_is_noticed(tmp_path, place) -> None:
    path = tmp_path / "x"
    index_files.write_file(path, b"some content")
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert index_files.read_file(path) is None


def test_a_file_under_another_key_is_not_read(tmp_path, monkeypatch) -> None:
    index_files.write_file(tmp_path / "x", b"content")
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "other"))
    assert index_files.read_key(make=True) and index_files.read_file(tmp_path / "x") is None


def test_replaced_files_and_those_of_ended_processes_are_removed(tmp_path) -> None:
    code = "from cutaway.store.process_suffix import owner_token; print(owner_token())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {
        "used": f"rows.{owner_token()}",
        "replaced": f"rows.{owner_token()}",
        "written just now by another thread": f"rows.{owner_token()}",
        "of an ended process": f"rows.{dead.stdout.strip()}",
        "of another table": f"runs.{dead.stdout.strip()}",
    }
    for name in names.values():
        (tmp_path / name).touch()
    index_files.remove_unused(tmp_path, "rows", {names["used"]}, {names["replaced"]})
    left = {what for what, name in names.items() if (tmp_path / name).exists()}
    assert left == names.keys() - {"replaced", "of an ended process"}


def test_the_index_is_beside_the_runs_and_named_by_the_key(tmp_path, key) -> None:
    place = index_files.index_folder(tmp_path)
    assert place.parent == tmp_path / index_files.INDEX_FOLDER
    assert key.hex()[:16] not in str(place)


@pytest.mark.parametrize("depth", [1, 2])
def test_an_index_that_is_a_link_is_not_followed(tmp_path, depth) -> None:
    place, mine = index_files.index_folder(tmp_path), tmp_path / "mine"
    mine.mkdir()
    link = place if depth == 2 else place.parent
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(mine)
    assert index_files.index_folder(tmp_path).is_relative_to(tmp_path / "home")


def test_the_code_decides_the_version() -> None:
    assert index_files.code_digest() == index_files.code_digest()
    assert len(index_files.code_digest()) == 32 and os.fspath(index_files.__file__)
