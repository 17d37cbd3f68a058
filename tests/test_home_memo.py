"""The small memory: whole or not there."""

import os

from cutaway.home import read_memo, write_memo


def test_what_is_remembered_is_recalled(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "new"))
    assert read_memo("notes", "a") is None
    write_memo("notes", "a", [1])
    write_memo("notes", "b", "two")
    assert (read_memo("notes", "a"), read_memo("notes", "b")) == ([1], "two")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["notes.json"]


def test_a_spoiled_memory_is_no_memory_and_is_replaced(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    for text in ("{", "[1, 2]", ""):
        (tmp_path / "notes.json").write_text(text)
        assert read_memo("notes", "a") is None
        write_memo("notes", "a", 1)
        assert read_memo("notes", "a") == 1


def test_a_failed_write_leaves_the_old_memory(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    write_memo("notes", "a", 1)

    def full(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        write_memo("notes", "a", 2)
    assert read_memo("notes", "a") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["notes.json"]
