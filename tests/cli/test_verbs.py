import json

import pytest

from cutaway.catalog import VERBS
from cutaway.cli.main import run
from cutaway.cli.verbs import add_positional_flag, spec_grid
from cutaway.core.errors import BadSpec
from cutaway.methods.probe.spec import ProbeSpec

FIRST = [(verb.words, verb.first) for verb in VERBS.values() if verb.first]


@pytest.mark.parametrize(("words", "field"), FIRST)
def test_a_first_value_without_a_flag_gets_the_flag_of_its_verb(words: str, field: str) -> None:
    head = words.split()
    assert add_positional_flag([*head, "value", "--x"]) == [*head, f"--{field}", "value", "--x"]
    for unchanged in ([*head, "--x", "value"], head):
        assert add_positional_flag(unchanged) == unchanged


def test_lists_in_single_valued_fields_make_a_grid() -> None:
    values = {"model": "m", "data": ["d", "e"], "seed": [0, 1], "repeats": [2, 3]}
    specs = list(spec_grid(ProbeSpec, values))
    assert [(s.seed, s.repeats) for s in specs] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert {s.data for s in specs} == {("d", "e")}


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(BadSpec, match="seed is an empty list"):
        list(spec_grid(ProbeSpec, {"model": "m", "data": "d", "seed": []}))


def test_a_grid_prints_one_list_and_a_single_run_its_entry(tmp_path, capsys) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('verb = "probe"\nmodel = "m"\ndata = "d"\nseed = [0, 1]\n')
    assert run(["run", str(file), "--print-spec"]) == 0
    assert [spec["seed"] for spec in json.loads(capsys.readouterr().out)] == [0, 1]
    assert run(["run", str(file), "--print-spec", "--seed", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 7


@pytest.mark.parametrize(
    ("text", "hint"), [("model = 'm'", "needs a line such as verb"), ("verb = 'prob'", "probe")]
)
def test_a_file_without_a_known_verb_is_refused(tmp_path, capsys, text: str, hint: str) -> None:
    (tmp_path / "spec.toml").write_text(text)
    assert run(["run", str(tmp_path / "spec.toml")]) == 2
    assert hint in capsys.readouterr().err
