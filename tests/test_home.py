"""One home for every room that keeps something."""

from pathlib import Path

import platformdirs
import pytest

from cutaway import home as place
from cutaway.core.errors import BadSpec
from cutaway.methods.graft.checkpoint import need_empty_folder
from cutaway.store import home as store_home
from cutaway.store.remote import mirrors_folder

CACHE = Path(platformdirs.user_cache_dir("cutaway"))


@pytest.mark.parametrize("said", ["", "  ", "~/kept", "kept", "/somewhere/kept"])
def test_models_and_activations_have_one_home(said, monkeypatch) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", said)
    assert place.home() == store_home.cache_folder()
    assert place.home().is_absolute()


def test_it_is_what_the_environment_says_else_the_users_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    assert place.home() == tmp_path
    monkeypatch.setenv("CUTAWAY_HOME", " ")
    assert place.home() == CACHE


def test_what_belongs_to_this_machine_stays_here_when_the_store_is_a_url(monkeypatch) -> None:
    monkeypatch.setenv("CUTAWAY_HOME", "s3://bucket/kept")
    monkeypatch.delenv("CUTAWAY_MIRROR", raising=False)
    assert place.home() == CACHE
    assert mirrors_folder() == CACHE / "mirrors"
    assert mirrors_folder() in store_home.cache_folder().parents


@pytest.mark.parametrize("variable", ["CUTAWAY_HOME", "CUTAWAY_MIRROR"])
def test_a_home_of_nobody_is_refused(variable, monkeypatch) -> None:
    monkeypatch.setenv(variable, "~nosuch/x")
    with pytest.raises(BadSpec, match=f"{variable} is '~nosuch/x': there is no home '~nosuch'"):
        place.folder_from_env(variable)


def test_a_path_with_nobodys_home_is_left_as_it_is() -> None:
    assert place.expand_path("~nosuch/x") == Path("~nosuch/x")
    assert place.expand_path("~/x") == Path.home() / "x"


def test_a_checkpoint_is_not_written_to_nobodys_home() -> None:
    with pytest.raises(BadSpec, match="--out is '~nosuch/x'"):
        need_empty_folder("~nosuch/x")
