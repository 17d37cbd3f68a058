"""A name is found, or the message helps to find it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import UnknownName
from cutaway.core.lookup import lookup, suggestion

TABLE = {"mean": 1, "last": 2, "Max": 3}


@pytest.mark.parametrize("name", TABLE)
def test_a_known_name_gives_its_row(name):
    assert lookup(TABLE, name, kind="pooler") == TABLE[name]


@pytest.mark.parametrize(
    ("name", "meant"), [("maen", "mean"), ("LAST", "last"), ("max", "Max"), ("meann", "mean")]
)
def test_a_near_miss_is_refused_with_the_name_that_was_meant(name, meant):
    with pytest.raises(UnknownName) as caught:
        lookup(TABLE, name, kind="pooler")
    expected = f"Unknown pooler {name!r}. Did you mean {meant!r}? Known: Max, last, mean."
    assert str(caught.value) == expected


def test_a_far_miss_lists_what_is_known_and_guesses_nothing():
    assert suggestion("zzz", TABLE) == ""
    with pytest.raises(UnknownName, match=r"^Unknown pooler 'zzz'\. Known: Max, last, mean\.$"):
        lookup(TABLE, "zzz", kind="pooler")
    with pytest.raises(UnknownName, match="Known: none"):
        lookup({}, "zzz", kind="pooler")


@given(name=st.text(max_size=8))
def test_what_is_suggested_is_always_in_the_table(name):
    said = suggestion(name, TABLE)
    assert said == "" or any(f"{known!r}" in said for known in TABLE)
