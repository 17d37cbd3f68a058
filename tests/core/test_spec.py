"""A spec is one from keywords and TOML, refuses what it doesn't know, names its result."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, create_model, field_validator

from cutaway.core.errors import BadSpec
from cutaway.core.spec import (
    FIELDS_OUTSIDE_ADDRESS,
    SAME_ADDRESS,
    VALUES_OUTSIDE_ADDRESS,
    Spec,
    address,
    build_spec,
    parse_toml,
    spec_to_dict,
)


class Drill(Spec):
    """A spec with one field of each kind."""

    model: str
    """A checkpoint name."""
    folds: int = Field(5, ge=2)
    """How many parts."""
    pool: Literal["last", "mean"] = "last"
    """Which token."""
    layers: tuple[int, ...] = (0, 1)
    """Which layers."""
    device: str = "auto"
    """Where it runs."""

    @field_validator("model")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value:
            raise ValueError("model must have a name, got ''.")
        return value


class Other(Drill):
    """Another recipe with the same fields."""


def test_keywords_and_toml_build_the_same_spec():
    text = 'model = "tiny"\nfolds = 3\nlayers = [2, 4]\n'
    spec = build_spec(Drill, {"model": "tiny", "folds": 3, "layers": [2, 4]})
    assert build_spec(Drill, parse_toml(text)) == spec
    assert build_spec(Drill, spec_to_dict(spec)) == spec


def test_a_spec_is_frozen():
    spec = build_spec(Drill, {"model": "tiny"})
    with pytest.raises(ValidationError, match="frozen"):
        spec.folds = 9


@pytest.mark.parametrize("name", Drill.model_fields)
def test_the_docstring_under_a_field_is_its_help(name):
    assert Drill.model_fields[name].description.endswith(".")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "m", "fold": 3}, "Drill has no field 'fold'. Did you mean 'folds'?"),
        ({"model": "m", "zzz": 3}, "Known: model, folds, pool, layers, device."),
        ({}, "model is required."),
        ({"model": "m", "folds": 1}, "greater than or equal to 2, got 1."),
        ({"model": "m", "folds": "many"}, "folds: .*got 'many'."),
        ({"model": "m", "pool": "maen"}, "'last' or 'mean', got 'maen'."),
        ({"model": "m", "layers": [0, "x"]}, r"layers\.1: .*got 'x'"),
        ({"model": ""}, "^model must have a name, got ''.$"),
        ({"folds": 0}, "model is required.*got 0"),
    ],
)
def test_a_wrong_value_is_refused_with_field_value_and_bound(values, words):
    with pytest.raises(BadSpec, match=words):
        build_spec(Drill, values)


def test_broken_toml_is_refused_with_its_line():
    with pytest.raises(BadSpec, match=r"not valid TOML: .*line 2"):
        parse_toml('model = "m"\nfolds = = 3')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("x = " + "9" * 5000, "a value that can't be read: .*digits"),
    ],
)
def test_toml_that_python_cannot_hold_is_refused(text, words):
    with pytest.raises(BadSpec, match=words):
        parse_toml(text)


def test_toml_is_read_into_plain_values():
    assert parse_toml("[probe]\nlayers = [1, 2]") == {"probe": {"layers": [1, 2]}}


def where(cls=Drill, weights="w", **changes):
    return address(build_spec(cls, {"model": "tiny", **changes}), weights=weights)


def test_an_address_is_pinned_and_a_default_is_as_good_as_its_value():
    # Another rule for addresses would hide every run there is.
    assert where() == "afb881d74a93d754"
    assert where(folds=5) == where()


@pytest.mark.parametrize("change", [{"folds": 3}, {"pool": "mean"}, {"layers": (1, 0)}])
def test_what_decides_the_number_changes_the_address(change):
    assert where(**change) != where()


def test_the_kind_of_spec_and_the_weights_decide_too():
    assert where(Other) != where()
    assert where(weights="other") != where()


def test_how_the_run_goes_does_not_change_the_address():
    assert "device" in FIELDS_OUTSIDE_ADDRESS
    assert where(device="cuda") == where()


@pytest.mark.parametrize(
    ("field", "same", "other"),
    [
        *((n, v, "another") for n, values in VALUES_OUTSIDE_ADDRESS.items() for v in values),
        *((n, a, "another") for n, equal in SAME_ADDRESS.items() for a in equal),
    ],
)
def test_a_field_added_later_changes_the_address_only_where_it_changes_the_numbers(
    field, same, other
):
    before = {"Drill": Drill} if field in VALUES_OUTSIDE_ADDRESS else {}
    Later = create_model("Drill", __base__=Drill, **{field: (Any, same)})
    known = before.get("Drill") or create_model(
        "Drill", __base__=Drill, **{field: (Any, SAME_ADDRESS.get(field, {}).get(same))}
    )
    assert where(Later) == where(known)
    assert where(Later, **{field: other}) != where(known)


class Limited(Spec):
    """Fields that can be None."""

    limit: int | None = 12
    way: Literal["none", "some"] | None = "some"
    name: str | None = None
    rate: float = 0.5


def test_none_is_written_where_it_is_not_the_default() -> None:
    assert build_spec(Limited, {"limit": "none"}).limit is None
    assert build_spec(Limited, {"way": "none"}).way == "none", "a word of the field's own"
    assert build_spec(Limited, {"name": "none"}).name == "none", "a name like any other"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\0"])
def test_text_that_no_command_can_hold_is_refused(text: str) -> None:
    with pytest.raises(BadSpec, match="name has a NUL"):
        build_spec(Limited, {"name": text})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan"])
def test_a_number_that_has_no_address_is_refused(value) -> None:
    with pytest.raises(BadSpec, match="finite"):
        build_spec(Limited, {"rate": value})


def test_a_list_without_values_is_one_plain_message() -> None:
    class Several(Spec):
        names: Annotated[tuple[str, ...], Field(min_length=1)]

    with pytest.raises(BadSpec, match=r"^names needs at least one value\.$"):
        build_spec(Several, {"names": ()})
