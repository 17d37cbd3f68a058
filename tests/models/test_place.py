"""The small memory: whole or not there."""

import os

from cutaway.models.place import recall, remember


def test_what_is_remembered_is_recalled(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "new"))
    assert recall("notes", "a") is None
    remember("notes", "a", [1])
    remember("notes", "b", "two")
    assert (recall("notes", "a"), recall("notes", "b")) == ([1], "two")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["notes.json"]


def test_a_spoiled_memory_is_no_memory_and_is_replaced(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    for text in ("{", "[1, 2]", ""):
        (tmp_path / "notes.json").write_text(text)
        assert recall("notes", "a") is None
        remember("notes", "a", 1)
        assert recall("notes", "a") == 1


def test_a_failed_write_leaves_the_old_memory(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    remember("notes", "a", 1)

    def full(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        remember("notes", "a", 2)
    assert recall("notes", "a") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["notes.json"]
