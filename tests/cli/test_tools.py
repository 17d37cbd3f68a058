import json

import pytest

from cutaway.cli.main import run
from cutaway.models.bundled import BUNDLED
from tests.tiny import tiny


@pytest.mark.parametrize(("command", "key"), [("models", "bundled"), ("tasks", "tasks")])
def test_lists_are_printed_as_text_and_as_json(command: str, key: str, capsys) -> None:
    assert run([command, "--json"]) == 0
    names = json.loads(capsys.readouterr().out)[key]
    assert run([command]) == 0
    text = capsys.readouterr().out
    assert names and all(name in text for name in names)


def test_bundled_models_are_listed(capsys) -> None:
    run(["models", "--json"])
    assert set(json.loads(capsys.readouterr().out)["bundled"]) == set(BUNDLED)


def test_a_sound_model_passes_all_checks(tmp_path, capsys) -> None:
    model = str(tiny("llama", tmp_path / "model"))
    assert run(["check", model]) == 0 and "consistency checks passed" in capsys.readouterr().out
    assert run(["check", model, "--quiet"]) == 0 and capsys.readouterr().out == ""


def test_the_tour_prints_the_spec_of_every_stop(tmp_path, capsys) -> None:
    model = str(tiny("llama", tmp_path / "model"))
    assert run(["tour", "--model", model, "--print-spec", "--out", str(tmp_path / "tour")]) == 0
    specs = json.loads(capsys.readouterr().out)
    assert len(specs) > 5 and not (tmp_path / "tour").exists()
