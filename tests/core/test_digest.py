"""Same contents, same digest; other contents, another."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.digest import canonical, digest_json, digest_rows, digest_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_digest_is_pinned_for_ever():
    # The standard's own example: other digests would orphan every store there is.
    assert digest_text("abc").startswith("ba7816bf8f01cfea414140de5dae2223")
    assert digest_json({"b": 1, "a": [True, None]}) == digest_text('{"a":[true,null],"b":1}')


@given(value=st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_the_order_of_keys_does_not_count(value):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@given(a=st.lists(st.text(max_size=3), max_size=4), b=st.lists(st.text(max_size=3), max_size=4))
def test_rows_have_one_digest_if_and_only_if_they_are_the_same(a, b):
    assert (digest_rows(a) == digest_rows(b)) == (a == b)


def test_the_borders_between_rows_count():
    assert digest_rows(["ab", "c"]) != digest_rows(["a", "bc"])
    assert digest_rows(["a", ""]) != digest_rows(["a"])


def test_broken_unicode_has_a_digest_too():
    assert digest_text("\ud800") != digest_text("\ud801")
    assert digest_rows(["\ud800"]) != digest_rows(["\ud801"])


def test_a_number_that_is_none_has_no_canonical_form():
    with pytest.raises(ValueError, match="JSON"):
        canonical({"loss": math.nan})
