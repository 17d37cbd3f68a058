"""What the specs of inject accept and refuse."""

import pytest

from cutaway.methods.inject.cells import sweep_cells
from cutaway.methods.inject.spec import InjectSpec


def test_a_regulariser_may_have_strengths_of_its_own() -> None:
    spec = InjectSpec(model="m", regulariser="none,ewc=0.1:1,kl,ewc=1:5", strength="2,3")
    assert spec.strengths_by_regulariser == {
        "none": (0.0,),
        "ewc": (0.1, 1.0, 5.0),
        "kl": (2.0, 3.0),
    }
    assert [cell.name for cell in sweep_cells(spec)][:2] == ["none-0-seed0", "ewc-0.1-seed0"]


@pytest.mark.parametrize(
    ("given", "said"),
    [("ewc=-1", "0 or more"), ("ewc=", "must be numbers"), ("none=1", "none has no strength")],
)
def test_a_strength_that_cannot_be_is_refused_with_its_regulariser(given, said) -> None:
    with pytest.raises(ValueError, match=said):
        InjectSpec(model="m", regulariser=given)


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        ("strength", "0.1, 1,0.1", (0.1, 1.0)),
        ("strength", 2, (2.0,)),
        ("beyond", "3,4", (3, 4)),
        ("beyond", [5], (5,)),
        ("lora", "0,8,8", (0, 8)),
        ("lora", 4, (4,)),
        ("regulariser", ["none", "ewc=1:2"], ("none", "ewc=1:2")),
    ],
)
def test_lists_may_be_given_as_text_numbers_or_lists(field, given, value) -> None:
    assert getattr(InjectSpec(model="m", **{field: given}), field) == value


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("strength", "inf", "0 or more"),
        ("strength", "nan", "0 or more"),
        ("strength", "", "at least 1"),
        ("beyond", "0", "within 1-9"),
        ("beyond", "10", "within 1-9"),
        ("lora", "-1", "ranks of 0 or more"),
        ("lora", "², 3", "ranks of 0 or more"),
        ("lora", [], "at least 1"),
        ("regulariser", "", "at least 1"),
        ("retain_limit", 9, "greater than or equal to 10"),
    ],
)
def test_values_that_cannot_be_are_refused(field, given, message) -> None:
    with pytest.raises(ValueError, match=message):
        InjectSpec(model="m", **{field: given})
