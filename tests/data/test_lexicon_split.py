"""Lexicons are split by stems, in the given shares."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.lexicon_split import LEXICON_SHARES, split_lexicon, stem, word_set


@dataclass(frozen=True)
class Phrase:
    text: str
    slot: str = "noun"

    def words(self) -> set[str]:
        return word_set(self.text)

    def groups(self) -> list[tuple[str, int]]:
        return [(self.slot, 0)]


def split(phrases, shared=frozenset(), seed=0):
    return split_lexicon(phrases, frozenset(shared), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("related", "expected"),
    [(("delighted", "delightful", "delights"), "delight"), (("cook", "cooking"), "cook")],
)
def test_related_words_have_one_stem(related, expected: str) -> None:
    assert {stem(word) for word in related} == {expected}


def test_short_words_keep_at_least_three_letters() -> None:
    assert all(len(stem(word)) >= 3 for word in ("used", "less", "bees", "seedless", "yes"))


def test_words_are_lower_case_with_apostrophes_and_hyphens_inside() -> None:
    assert word_set("The cat's well-fed; 3 Cats.") == {"the", "cat's", "well-fed", "cats"}


WORDS = [f"{a}{b}{c}" for a in "bdfgkl" for b in "aio" for c in "bdgkmp"]


@given(st.lists(st.sampled_from(WORDS), min_size=1, unique=True), st.integers(0, 5))
def test_every_entry_is_in_exactly_one_part(words: list[str], seed: int) -> None:
    parts = split([Phrase(word) for word in words], seed=seed)
    assert sorted(entry.text for part in parts.values() for entry in part) == sorted(words)


@given(st.lists(st.lists(st.sampled_from(WORDS[:12]), min_size=1, max_size=3), min_size=1))
def test_no_stem_is_in_two_parts_unless_it_is_shared(texts: list[list[str]]) -> None:
    parts = split([Phrase(" ".join(["the", *words])) for words in texts], {"the"})
    stems = [{stem(w) for e in part for w in e.words() - {"the"}} for part in parts.values()]
    assert not any(one & two for one, two in combinations(stems, 2))


def test_entries_linked_through_a_third_stay_together() -> None:
    parts = split([Phrase("red door"), Phrase("door handle"), Phrase("handle bar")])
    assert sorted(map(len, parts.values())) == [0, 0, 3]


def test_unrelated_entries_are_divided_in_the_given_shares() -> None:
    parts = split([Phrase(word) for word in WORDS[:100]])
    for part, share in LEXICON_SHARES.items():
        assert abs(len(parts[part]) - 100 * share) <= 1
