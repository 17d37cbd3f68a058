"""What the text baselines see of a text."""

import numpy as np
import pytest

from cutaway.measure.words import count_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the CAT!", ["the", "cat", ",", "the", "cat", "!"]),
        ("don't can’t o'", ["don't", "can’t", "o", "'"]),
        ("😀 naïve 東京", ["😀", "naïve", "東京"]),
        (" \n", []),
    ],
)
def test_words_keep_apostrophes_and_marks_are_words(text, words):
    assert split_words(text) == words


def test_words_and_pairs_of_neighbours_are_counted():
    words = count_words(["a b a b", "b"])
    assert words.single.sum() == 2
    # a a-b b b-a, in the order of the alphabet
    assert words.counts.toarray().tolist() == [[2, 2, 2, 1], [0, 0, 1, 0]]


def test_a_word_of_the_second_text_is_another_term_than_the_same_of_the_first():
    words = count_words(["yes", "no"], pairs=["no", "yes"])
    assert words.counts.shape == (2, 4)
    assert (words.counts[0].toarray() != words.counts[1].toarray()).any()


def test_terms_known_to_rows_are_those_that_occur_in_them():
    words = count_words(["a b", "b c", "d"])
    single = words.known_to(np.array([0, 1]), pairs=False)
    assert words.counts[2][:, single].sum() == 0
    assert len(single) == 3
    assert len(words.known_to(np.array([0, 1]), pairs=True)) == 5


def test_texts_without_words_have_no_terms():
    assert count_words(["", "  "]).counts.shape == (2, 0)
