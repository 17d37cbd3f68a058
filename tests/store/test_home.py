"""Tests of the cache folder."""

from pathlib import Path

import platformdirs

from cutaway.store.home import cache_folder


def test_the_home_is_the_one_the_user_chose(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "kept"))
    assert cache_folder() == tmp_path / "kept"


def test_a_tilde_is_the_users_folder(monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", "~/kept")
    assert cache_folder() == Path.home() / "kept"


def test_without_a_choice_it_is_the_users_cache(monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", "  ")
    assert cache_folder() == Path(platformdirs.user_cache_dir("cutaway"))


def test_asking_creates_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "kept"))
    cache_folder()
    assert list(tmp_path.iterdir()) == []
