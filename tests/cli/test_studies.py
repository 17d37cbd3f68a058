import json

from cutaway.catalog import VERBS
from cutaway.cli.main import run
from cutaway.studies.findings import known_studies


def test_an_unknown_study_is_refused_and_lists_the_known_ones(capsys) -> None:
    assert run(["reproduce", "prob"]) == 2
    assert "probe" in capsys.readouterr().err


def test_the_specs_of_all_steps_are_printed(capsys) -> None:
    assert run(["reproduce", "probe", "--print-spec", "--seed", "3"]) == 0
    specs = json.loads(capsys.readouterr().out)
    steps = known_studies()["probe"].steps
    assert len(specs) == len(steps) and {spec["seed"] for spec in specs} == {3}
    for spec, step in zip(specs, steps, strict=True):
        assert set(spec) >= set(VERBS[step.verb].spec_class.model_fields) & {"model", "data"}
