"""Values of shared options: lists from commas, numbers, layer choices, engines, folders."""

import pytest
from pydantic import ValidationError

from cutaway.recipe.options import MAX_SEED, LayerChoices, Names, RunOptions, Sizes, SomeNames


class Options(RunOptions):
    """One field of each type."""

    some: SomeNames = ("a",)
    names: Names = ()
    sizes: Sizes = ()
    layers: LayerChoices = ("all",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a,b", ("a", "b")),
        (" a , b ,", ("a", "b")),
        (["a,b", "c"], ("a", "b", "c")),
        ("gen:x?n=1,m=2", ("gen:x?n=1,m=2",)),
    ],
)
def test_names_come_from_commas_and_lists(value, expected) -> None:
    assert Options(names=value).names == expected
    assert Options(some=value).some == expected


def test_a_list_that_needs_a_name_refuses_an_empty_one() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        Options(some="")
    assert Options(names="").names == ()


@pytest.mark.parametrize(
    ("value", "expected"), [("100,0.5", (100, 0.5)), ([10, "1e3"], (10, 1000.0)), (7, (7,))]
)
def test_numbers_are_integers_or_fractions(value, expected) -> None:
    sizes = Options(sizes=value).sizes
    assert sizes == expected
    assert [type(one) for one in sizes] == [type(one) for one in expected]


@pytest.mark.parametrize("value", ["many", "1e40", "inf", "nan", None, "1,x"])
def test_what_is_no_number_is_named(value) -> None:
    with pytest.raises(ValidationError, match="Numbers such as 100,1000"):
        Options(sizes=value)


def test_each_entry_of_a_list_of_layers_is_one_choice() -> None:
    assert Options(layers="0,6").layers == ("0,6",)
    assert Options(layers=["mean:all", 3]).layers == ("mean:all", "3")


def test_engines_folders_and_seeds_are_checked_when_they_are_given() -> None:
    with pytest.raises(ValidationError, match="engine"):
        RunOptions(engine="locl")
    with pytest.raises(ValidationError, match="runs"):
        RunOptions(runs="s3://key:secret@bucket/runs")
    assert RunOptions(seed=MAX_SEED).seed == MAX_SEED
    with pytest.raises(ValidationError):
        RunOptions(seed=MAX_SEED + 1)
