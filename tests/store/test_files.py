"""Tests of files that are whole or not there."""

import errno
import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import Corrupt, CutawayError, Missing, NoRoom, RequestError, RunError
from cutaway.store import files, process_suffix
from tests.store.samples import DISK

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def _stale(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp-00000000-1-{'0' * 32}")


def _fail(number: int):
    def raising(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    return raising


@pytest.mark.parametrize("data", [b"", b"one", [b"on", b"", memoryview(b"e")]])
def test_what_is_written_is_read(tmp_path, data):
    files.write_atomic(tmp_path / "deep" / "er" / "x", data)
    expected = data if isinstance(data, bytes) else b"one"
    assert (tmp_path / "deep" / "er" / "x").read_bytes() == expected
    assert [p.name for p in (tmp_path / "deep" / "er").iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, NoRoom, "full"),
        (errno.EDQUOT, NoRoom, "quota"),
        (errno.EROFS, RequestError, "read-only"),
        (errno.EACCES, RequestError, "permission"),
        (errno.EIO, RunError, "Input/output"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failed_write_keeps_the_old_content_and_leaves_nothing(
    tmp_path, monkeypatch, number, kind, said, call
):
    path = tmp_path / "x"
    files.write_atomic(path, b"old")
    monkeypatch.setattr(os, call, _fail(number))
    with pytest.raises(kind, match=said) as caught:
        files.write_atomic(path, b"new")
    assert str(path) in str(caught.value)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_short_write_of_the_system_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:3]))
    files.write_atomic(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path):
    def chunks():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomic(tmp_path / "x", chunks())
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_is_needed_is_said_so(tmp_path):
    (tmp_path / "x").write_text("a file")
    with pytest.raises(RequestError, match="file"):
        files.write_atomic(tmp_path / "x" / "y", b"")


def test_a_name_too_long_for_the_disk_is_said_so(tmp_path):
    with pytest.raises(RequestError, match="too long"):
        files.write_atomic(tmp_path / ("x" * 400), b"")


@DISK
@given(JSON)
def test_json_comes_back_as_it_went_in(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    files.write_json(path, value)
    assert files.read_json(path) == value


@DISK
@given(st.dictionaries(st.text().filter(lambda key: key != "seal"), JSON, max_size=3))
def test_a_sealed_file_comes_back_without_its_seal(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "sealed.json"
    files.write_sealed(path, value)
    assert files.read_sealed(path) == value


def test_a_lone_surrogate_survives(tmp_path):
    files.write_json(tmp_path / "x.json", {"text": "\ud83d broken"})
    assert files.read_json(tmp_path / "x.json") == {"text": "\ud83d broken"}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array([math.nan, 1.0]), [None, 1.0]),
        (math.inf, None),
        ((1, {2}), [1, [2]]),
        ({3: Path("a")}, {"3": "a"}),
        (True, True),
    ],
)
def test_numpy_and_paths_become_plain_json(value, plain):
    assert files.jsonable(value) == plain
    assert type(files.jsonable(value)) is type(plain)


@DISK
@given(st.data())
def test_a_file_cut_short_or_with_one_byte_changed_is_corrupt(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "cut.json"
    whole = files.sealed_bytes({"a": [1.5, "word"], "b": {"c": 27}})
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        spoiled = whole[:place]
    else:
        spoiled = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))])
        spoiled += whole[place + 1 :]
    path.write_bytes(spoiled)
    with pytest.raises(Corrupt, match=r"cut\.json"):
        files.read_sealed(path)


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", "nul", "[" * 100_000, "9" * 9999, b"\xff\xfe\x00"]
)
def test_what_is_not_json_is_corrupt(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Corrupt, match=r"x\.json"):
        files.read_json(path)


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", '{"a": 1}', '{"a": 1, "seal": "0"}', '{"seal": null}']
)
def test_what_has_no_right_seal_is_corrupt(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(Corrupt):
        files.read_sealed(tmp_path / "x.json")


def test_a_seal_may_be_absent_where_hands_write_too(tmp_path):
    (tmp_path / "x.json").write_text('{"a": NaN}')
    assert math.isnan(files.read_sealed(tmp_path / "x.json", needs_seal=False)["a"])


def test_an_absent_file_is_missing(tmp_path):
    with pytest.raises(Missing, match=r"nothing\.json"):
        files.read_json(tmp_path / "nothing.json")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as handle:
        handle.truncate(files.JSON_LIMIT + 1)
    with pytest.raises(Corrupt, match="more than"):
        files.read_json(path)


def test_the_checksum_is_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc" * 99)
    assert files.sha256_file(tmp_path / "x") == hashlib.sha256(b"abc" * 99).hexdigest()


def test_too_little_room_names_both_sizes(tmp_path):
    with pytest.raises(NoRoom, match=rf"needs {10**18} bytes .* only \d+ "):
        files.check_free_space(tmp_path / "not" / "there", 10**18)
    files.check_free_space(tmp_path / "not" / "there", 1)
    assert list(tmp_path.iterdir()) == []


def test_sweeping_takes_dead_siblings_and_leaves_the_rest(tmp_path):
    keep = [tmp_path / "x.json", files.temporary_path(tmp_path / "x.json"), tmp_path / "a.tmp-mine"]
    for path in keep:
        path.touch()
    dead = _stale(tmp_path / "x.json")
    dead.mkdir()
    (dead / "rows.parquet").touch()
    os.utime(dead, (0, 0))
    assert files.remove_stale_temporaries(tmp_path) == [dead]
    assert set(tmp_path.iterdir()) == set(keep)


def test_a_folder_is_dropped_at_once_and_twice_is_no_error(tmp_path):
    (tmp_path / "x" / "y").mkdir(parents=True)
    files.remove_folder(tmp_path / "x")
    files.remove_folder(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_our_own_errors_pass_untouched(tmp_path):
    with pytest.raises(Missing, match="as it was"), files.disk_errors(tmp_path):
        raise Missing("as it was")
    assert issubclass(Missing, CutawayError)


def test_a_temporary_name_is_told_from_others(tmp_path):
    assert files.is_temporary(files.temporary_path(tmp_path / "x"))
    assert process_suffix.machine_id() in files.temporary_path(tmp_path / "x").name
    assert not files.is_temporary(tmp_path / "result.json")


def test_a_folder_is_replaced_as_a_whole_and_leftovers_of_dead_processes_are_removed(tmp_path):
    out = tmp_path / "checkpoint"
    out.mkdir()
    (out / "old").touch()
    left = tmp_path / f"checkpoint.tmp-{process_suffix.machine_id()}-999999999-{'0' * 32}"
    left.mkdir()
    with pytest.raises(ZeroDivisionError), files.replaced_folder(out) as aside:
        aside.mkdir()
        (aside / "half").touch()
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert (out / "old").exists()
    with files.replaced_folder(out) as aside:
        aside.mkdir()
        (aside / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert [path.name for path in out.iterdir()] == ["new"]
