from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field
from streamlit.testing.v1 import AppTest

from cutaway.app import forms
from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec, build_spec


class Example(Spec):
    """One field of every kind."""

    name: str
    """Its name, with *stars*."""
    many: Annotated[tuple[str, ...], BeforeValidator(tuple)] = ("a", "b")
    """Several."""
    way: Literal["left", "right"] = "right"
    """Which side."""
    maybe: Literal["x", "y"] | None = None
    """Perhaps one of them."""
    count: int = Field(default=3, ge=1)
    """How many."""
    limit: int | None = Field(default=None, ge=2)
    """At most."""
    rate: float = 0.5
    """How fast."""
    loud: bool = False
    """Whether to shout."""
    bold: bool | None = None
    """Yes, no, or as the recipe likes."""
    mix: Literal["auto"] | float | None = None
    """A word or a number."""


def draw() -> AppTest:
    def script() -> None:
        import streamlit as st

        from cutaway.app import forms
        from tests.app.test_forms import Example

        st.session_state["values"] = {
            name: forms.draw_field(name, info, name) for name, info in Example.model_fields.items()
        }

    app = AppTest.from_function(script).run()
    assert not app.exception
    return app


def test_an_untouched_form_gives_the_defaults() -> None:
    values = draw().session_state["values"]
    assert forms.provided_values(Example, values) == {
        "many": ["a", "b"], "way": "right", "maybe": None, "count": 3, "limit": None,
        "rate": 0.5, "loud": False, "bold": None, "mix": None,
    }  # fmt: skip
    with pytest.raises(BadSpec, match="name is required"):
        build_spec(Example, forms.provided_values(Example, values))


def test_what_is_typed_is_what_the_spec_gets() -> None:
    app = draw()
    app.text_input(key="name").set_value(" me ")
    app.text_input(key="many").set_value("0,6,12; mean:all ;")
    app.selectbox(key="maybe").set_value("y")
    app.number_input(key="limit").set_value(7)
    app.toggle(key="loud").set_value(True)
    app.selectbox(key="bold").set_value("no")
    app.text_input(key="mix").set_value("0.25")
    app.run()
    spec = build_spec(Example, forms.provided_values(Example, app.session_state["values"]))
    assert (spec.name, spec.many, spec.maybe, spec.limit, spec.loud) == (
        "me", ("0,6,12", "mean:all"), "y", 7, True,
    )  # fmt: skip
    assert (spec.bold, spec.mix) == (False, 0.25)


def test_help_is_the_docstring_as_plain_text_and_bounds_are_kept() -> None:
    app = draw()
    assert app.text_input(key="name").help == "Its name, with \\*stars\\*."
    assert app.number_input(key="count").min == 1
    assert app.text_input(key="name").label == "Name *"


@pytest.mark.parametrize("method", VERBS)
def test_every_spec_has_a_widget_for_every_field_and_its_defaults_survive(method: str) -> None:
    app = AppTest.from_string(
        f"""
import streamlit as st
from cutaway.app import forms
from cutaway.catalog import VERBS
st.session_state["values"] = forms.draw_form(VERBS[{method!r}].spec_class, (), key="f").values
""",
        default_timeout=30,
    ).run()
    assert not app.exception
    cls, values = VERBS[method].spec_class, app.session_state["values"]
    needed = {n: "x" for n, info in cls.model_fields.items() if info.is_required()}
    needed |= {"data": "x"} if method == "nextword" else {}
    assert set(values) | forms.HIDDEN_FIELDS | forms.OUTPUT_FIELDS >= set(cls.model_fields)
    assert set(values) >= set(needed), "what is needed is asked for"
    filled = {**forms.provided_values(cls, values), **needed}
    assert build_spec(cls, filled) == build_spec(cls, needed)


@pytest.mark.parametrize(
    "given",
    [
        "/etc/passwd",
        "../secret.csv",
        "a.csv,/etc/hosts",
        "gpt2+/etc",
        "~root/..",
        "cola=/etc/hosts",
    ],
)
def test_a_form_can_not_name_files_outside_its_place(tmp_path, given: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "secret.csv").write_text("x")
    with pytest.raises(BadSpec, match="outside"):
        forms.check_readable_paths({"data": [given]}, [place])


def test_a_link_out_of_the_place_is_outside_too(tmp_path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").symlink_to("/etc")
    with pytest.raises(BadSpec):
        forms.check_readable_paths({"model": "link/passwd"}, [place])


@pytest.mark.parametrize(
    "given", ["gpt2", "org/name", "gen:sentiment", "hf:a/b:train", "in.csv", "x" * 5000]
)
def test_names_and_files_inside_are_left_to_the_recipe(tmp_path, given: str) -> None:
    (tmp_path / "in.csv").write_text("x")
    forms.check_readable_paths({"data": [given], "model": given}, [Path(tmp_path)])


def test_files_of_the_runs_folder_may_be_read_wherever_it_lies(tmp_path) -> None:
    place, runs = tmp_path / "place", tmp_path / "runs"
    for folder in (place, runs):
        folder.mkdir()
    (runs / "maps.safetensors").write_text("x")
    forms.check_readable_paths({"shortcut": str(runs / "maps.safetensors")}, [place, runs])
    with pytest.raises(BadSpec):
        forms.check_readable_paths({"shortcut": str(runs / "maps.safetensors")}, [place])


@pytest.mark.parametrize("name", sorted(forms.OUTPUT_FIELDS))
def test_what_a_run_writes_goes_into_the_runs_folder(tmp_path, name: str) -> None:
    placed = forms.resolve_output_paths(
        {name: "a/b.safetensors", "model": "../m"}, tmp_path / "made"
    )
    assert placed == {name: str(tmp_path / "made" / "a" / "b.safetensors"), "model": "../m"}
    assert forms.resolve_output_paths({name: None}, tmp_path) == {name: None}


@pytest.mark.parametrize("given", ["/tmp/x", "../x", "a/../../x", ".", "~/x", "link/x", "a\x00b"])
def test_nothing_is_written_outside_the_runs_folder(tmp_path, given: str) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "link").symlink_to("/tmp")
    with pytest.raises(BadSpec, match="is outside"):
        forms.resolve_output_paths({"out": given}, tmp_path / "made")


def test_a_refusal_is_placed_at_the_fields_it_names() -> None:
    said = "count is required. limit: must be at least 2, got 1. Try again."
    assert forms.messages_by_field(said, ["count", "limit", "rate"]) == {
        "count": "count is required.",
        "limit": "limit: must be at least 2, got 1.",
    }
    assert forms.messages_by_field("count and limit disagree.", ["count", "limit"]) == {}
