"""Words to tokens, and the refusals of class words."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.maths.words import (
    check_distinct_tokens,
    class_token_ids,
    find_word_tokens,
)

WORDS = {" good": [1], "good": [2], "good ": [2, 9], " bad": [3], "bad": [4, 5], "bad ": [4, 9]}
WORDS |= {"Bad": [3], " fine": [1], "fine": [1]}


def encode(text: str) -> list[int]:
    return WORDS.get(text, [7, 8])


def test_every_spacing_that_is_one_token_counts_and_others_are_missing() -> None:
    found = find_word_tokens(["good", "bad", "odd", "good"], encode)
    assert found.tokens == {"good": (1, 2), "bad": (3,)}
    assert found.missing == ("odd",)
    assert found.ids == (1, 2, 3)


def test_a_token_of_two_words_is_listed_once() -> None:
    assert find_word_tokens(["good", "fine"], encode).ids == (1, 2)


def test_class_words_with_a_common_token_are_refused_with_both_names() -> None:
    words = ["good", "fine"]
    with pytest.raises(BadSpec, match="'good' and 'fine' are the same token"):
        check_distinct_tokens(words, find_word_tokens(words, encode))
    with pytest.raises(BadSpec, match="is given for two classes"):
        check_distinct_tokens(["good", "good"], find_word_tokens(["good"], encode))


def test_zero_shot_needs_one_known_word_for_each_class() -> None:
    found = find_word_tokens(["good", "bad", "odd"], encode)
    assert class_token_ids(["bad", "good"], found, ["no", "yes"]) == [[3], [1, 2]]
    with pytest.raises(BadSpec, match="1 words for 2 classes"):
        class_token_ids(["bad"], found, ["no", "yes"])
    with pytest.raises(BadSpec, match="'odd' is not a single token"):
        class_token_ids(["bad", "odd"], found, ["no", "yes"])
