"""Grammars: entries, forms and sampled sentences."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.data.grammar import (
    Grammar,
    fix_articles,
    generate_from_grammar,
    lexicon,
    parse_entries,
)

NAMES = "anna, berta, carla, dora, emil, frida, gustav, hugo, ida, jonas, karl, lena"
WORDS = "bread, water, apples, grapes, chairs, tables, books, lamps, pens, cups, coats, hats"
GRAMMAR = Grammar(
    name="toy",
    classes=("now", "then"),
    templates="{person} [x] {thing1} and {thing2}.\n".replace("[x]", "{verb}"),
    function_words="and the",
    slots={"person": NAMES, "thing": WORDS, "verb": "[buys|bought], [finds|found], [takes|took],"
           "[likes|liked], [paints|painted], [sells|sold], [washes|washed], [moves|moved]"},
)  # fmt: skip


def test_entries_are_split_at_commas_and_lines_without_duplicates() -> None:
    assert parse_entries("a, b\nc,, a") == ("a", "b", "c")
    assert parse_entries(("x",)) == ("x",)


def test_brackets_hold_one_form_per_class() -> None:
    verbs = [entry.spellings for entry in lexicon(GRAMMAR) if entry.slot == "verb"]
    assert verbs[:2] == [("buys", "bought"), ("finds", "found")]


def test_a_marked_entry_fits_its_class_only() -> None:
    grammar = GRAMMAR.model_copy(update={"marked": {"then": {"end": ("yesterday",)}}})
    (entry,) = [entry for entry in lexicon(grammar) if entry.slot == "end"]
    assert entry.spellings == (None, "yesterday")
    assert entry.groups() == [("end", 1)]
    assert entry.words() == {"yesterday"}


def test_two_slots_of_one_kind_get_different_words_and_classes_alternate() -> None:
    made = generate_from_grammar(GRAMMAR, "gen:toy", {"train": 20, "test": 6}, seed=1)
    for text in made.texts:
        left, right = text.rstrip(".").split(" and ")
        assert left.split()[-1] != right
    for part, size in (("train", 20), ("test", 6)):
        assert made.part(part).labels.sum() == size // 2
    assert len(set(made.texts)) == len(made)


def test_more_sentences_than_the_words_allow_are_refused() -> None:
    with pytest.raises(BadSpec, match=r"gen:toy has words for about \d+ different sentences"):
        generate_from_grammar(GRAMMAR, "gen:toy", {"train": 10, "test": 5000}, seed=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it was a awful day.", "It was an awful day."),
        ("a useful tool.", "A useful tool."),
        ("a honest man.", "An honest man."),
        ("a unique idea.", "A unique idea."),
        ("a one-off.", "A one-off."),
        ("i had a yoga mat.", "I had a yoga mat."),
    ],
)
def test_articles_fit_the_word_that_follows(text: str, expected: str) -> None:
    assert fix_articles(text) == expected
