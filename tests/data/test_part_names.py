"""Spellings of train, dev and test."""

import pytest

from cutaway.core.textset import PARTS
from cutaway.data.part_names import PART_BY_SPELLING, PART_SPELLINGS, part_from_name


def test_every_spelling_means_one_part() -> None:
    assert set(PART_SPELLINGS) == set(PARTS)
    assert len(PART_BY_SPELLING) == sum(map(len, PART_SPELLINGS.values()))


@pytest.mark.parametrize("name", PART_BY_SPELLING)
def test_a_suffix_or_capitals_do_not_change_the_part(name: str) -> None:
    part = PART_BY_SPELLING[name]
    for spelled in (name, name.upper(), f"{name}_matched", f"{name}-2k", f"{name}.clean"):
        assert part_from_name(spelled) == part


@pytest.mark.parametrize("name", ["", "all", "unsupervised", "trainer", "my_train"])
def test_other_names_are_no_part(name: str) -> None:
    assert part_from_name(name) is None
