"""`cutaway.graft`: every verb of the catalog, with the fields of its spec as keywords."""

import inspect

import pytest

import cutaway
from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec
from cutaway.methods.graft import api
from cutaway.methods.graft.skill import Skill

NAMES = [
    verb.name.removeprefix("graft.") for verb in VERBS.values() if verb.name.startswith("graft.")
]


def test_every_verb_is_offered_and_load() -> None:
    assert set(api.__all__) == {"load", *NAMES} == set(dir(cutaway.graft))
    assert "finetune" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_keywords_are_the_fields_of_the_spec(name: str) -> None:
    verb = next(verb for verb in VERBS.values() if verb.name == f"graft.{name}")
    parameters = set(inspect.signature(getattr(api, name)).parameters)
    assert parameters == {*verb.spec_class.model_fields, "quiet"}


def test_an_unknown_verb_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lern'"):
        _ = api.lern


def test_load_gives_a_skill(skill) -> None:
    assert isinstance(cutaway.graft.load(skill), Skill)


def test_a_loaded_skill_is_taken_where_its_file_is(skill, tmp_path) -> None:
    loaded = cutaway.graft.load(skill)
    runs = str(tmp_path / "runs")
    by_name = cutaway.graft.overlap([skill, skill], runs=runs, quiet=True)
    by_object = cutaway.graft.overlap([loaded, loaded], runs=runs, quiet=True)
    assert by_object.path == by_name.path
    with pytest.raises(BadSpec, match="Save it first"):
        cutaway.graft.overlap([loaded.rounded_to("bfloat16"), loaded])
