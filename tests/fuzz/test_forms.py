"""No value of a form becomes a flag, names a file outside, or brings an escape to the screen."""

import shlex

import pytest

from cutaway.catalog import VERBS
from cutaway.recipe.result import command_line, command_words
from tests.fuzz import forms

# Forms per verb, each with a hostile value in every field; `python -m tests.fuzz.forms` has 10,000.
SAMPLE = 25


@pytest.fixture
def place(tmp_path, monkeypatch) -> forms.Place:
    """A folder with the app's files and a secret beside it."""
    made = forms.Place(tmp_path.resolve())
    made.make()
    monkeypatch.chdir(made.root / "place")
    return made


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_form_accepts_is_the_command_that_was_shown(verb: str, place: forms.Place) -> None:
    with forms.quick_parser():
        forms.fuzz(verb, place, SAMPLE, seed=1)
    assert place.accepted > SAMPLE and place.refused > SAMPLE, "the fuzzer does nothing"


@pytest.mark.parametrize("value", [
    "--out=/elsewhere", "--engine=ray", "-dash", "--", "--json", "=x", "[1]", '["a"]', "{}", "none",
    "a\nb", "it's", "$(id)", "--no-offline",
])  # fmt: skip
def test_a_hostile_value_stays_the_value_of_its_field(value: str, place: forms.Place) -> None:
    spec = VERBS["finetune"].spec_class(model=value, task="sst2", params=[value], out="x")
    words = command_words("finetune", spec)
    assert forms.parse(words) == spec and spec.params == (value,)
    if value.isprintable():
        assert shlex.split(command_line("finetune", spec))[1:] == words


def test_the_quick_parser_gives_what_the_parser_gives(place: forms.Place) -> None:
    words = ["probe", "--model=a", "--model=b", "--data=d", "--no-drop-empty", "--seed=3"]
    slow = forms.parse(words)
    with forms.quick_parser():
        for other in (["probe", "--model=z", "--data=y", "--offline"], words, words):
            quick = forms.parse(other)
    assert quick == slow and slow != forms.parse(words[:-1])
