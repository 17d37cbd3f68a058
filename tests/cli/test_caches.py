import json

import pytest

from cutaway.cli.main import run


@pytest.fixture(autouse=True)
def _empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))


def test_an_empty_cache_is_reported_as_text_and_as_json(capsys) -> None:
    assert run(["cache", "ls"]) == 0 and "The cache is empty." in capsys.readouterr().out
    assert run(["cache", "ls", "--json"]) == 0 and json.loads(capsys.readouterr().out) == []
    assert run(["cache", "size", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 0


@pytest.mark.parametrize("words", [["prune", "--all"], ["prune", "--max-gb", "0"], ["verify"]])
def test_pruning_and_verifying_an_empty_cache_do_nothing(words, capsys) -> None:
    assert run(["cache", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
