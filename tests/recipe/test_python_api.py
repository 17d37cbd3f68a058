"""Python functions of verbs: objects and paths in place of names, groups, refusals."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import cutaway
from cutaway.catalog import GROUPS, VERBS
from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.recipe import life_cycle, python_api
from cutaway.recipe.artefact_handle import InFile

TEXTS = TextSet("mine", ("a", "b"), labels=(0, 1), task="binary")


@pytest.fixture
def calls(monkeypatch) -> list:
    """What reaches the life cycle instead of being run."""
    found: list = []
    monkeypatch.setattr(
        life_cycle, "run", lambda verb, spec, context: found.append((verb, spec, context))
    )
    return found


def test_options_become_a_spec_and_objects_are_passed_beside_it(calls) -> None:
    cutaway.probe(model="m", data=TEXTS, runs=Path("here"), quiet=True)
    [(verb, spec, context)] = calls
    assert verb is VERBS["probe"]
    assert spec.runs == "here"
    assert context.objects[spec.data[0]] is TEXTS
    assert context.console.quiet


@pytest.mark.parametrize("verb", [v for v in VERBS.values() if v.first], ids=lambda v: v.words)
def test_the_first_field_may_come_without_its_name(verb, calls) -> None:
    function = python_api.python_function(verb)
    several = python_api.takes_several(verb.spec_class, verb.first)
    needed = {
        name: "x"
        for name, info in verb.spec_class.model_fields.items()
        if info.is_required() and name != verb.first
    }
    function(["one", "two"] if several else "one", **needed)
    assert getattr(calls[0][1], verb.first) == (("one", "two") if several else "one")


@dataclass(frozen=True)
class Loaded(InFile):
    file: Path | None


def test_what_was_loaded_from_a_file_is_given_by_its_name(calls) -> None:
    one, two = Loaded(Path("one.safetensors")), Loaded(Path("two.safetensors"))
    cutaway.graft.overlap([one, "two.safetensors"])
    cutaway.graft.overlap(one, two)
    cutaway.graft.attach(one, base="base", out="out")
    cutaway.shortcut.eval(model="m", text="t", shortcut=one)
    cutaway.inject(model="m", fisher=one)
    cutaway.fisher(model="m", text="t", against=[one])
    both = ("one.safetensors", "two.safetensors")
    assert [spec.skill for _, spec, _ in calls[:3]] == [both, both, "one.safetensors"]
    assert calls[3][1].shortcut == calls[4][1].fisher == "one.safetensors"
    assert calls[5][1].against == ("one.safetensors",)
    with pytest.raises(BadSpec, match="skill: this Loaded is in no file"):
        cutaway.graft.attach(Loaded(None), base="base", out="out")


def test_paths_are_names(calls) -> None:
    cutaway.graft.overlap([Path("one.safetensors"), Path("two.safetensors")])
    cutaway.graft.overlap(Path("one.safetensors"), "two.safetensors")
    cutaway.graft.attach(Path("one.safetensors"), base=Path("base"), out=Path("out"))
    assert [spec.skill for _, spec, _ in calls] == [
        ("one.safetensors", "two.safetensors"),
        ("one.safetensors", "two.safetensors"),
        "one.safetensors",
    ]
    assert calls[2][1].base == "base"
    assert all(context.objects == {} for _, _, context in calls)


def test_other_positional_arguments_are_refused(calls) -> None:
    with pytest.raises(TypeError, match="only 'skill' may come without its name"):
        cutaway.graft.attach("one.safetensors", "base", out="out")
    with pytest.raises(TypeError, match="give them by name"):
        cutaway.probe("model")


def test_several_values_for_a_field_that_takes_one_are_refused(calls) -> None:
    with pytest.raises(BadSpec, match="model takes one, got 2"):
        cutaway.shortcut.fit(model=["a", "b"])


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_verbs_and_refuses_others(group) -> None:
    functions = python_api.group_functions(group)
    assert set(functions) <= set(dir(getattr(cutaway, group)))
    with pytest.raises(AttributeError, match=f"'cutaway.{group}' has no attribute 'lern'"):
        _ = getattr(cutaway, group).lern
