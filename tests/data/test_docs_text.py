import platform
import re

import pytest

from cutaway.core.digest import digest_rows
from cutaway.data.docs_text import load_docs
from cutaway.data.load import load_text_set
from cutaway.data.prose import is_prose, paragraphs, prose_sentences


def test_there_are_thousands_of_distinct_sentences_with_their_identity() -> None:
    text = load_text_set("docs")
    assert len(text) == len(set(text.texts)) >= 5000
    assert text.meta["python"] == platform.python_version()
    assert text.meta["digest"] == digest_rows(text.texts)
    assert load_docs() is load_docs()


def test_no_sentence_shows_markup_or_code() -> None:
    marks = re.compile(r"[`*_=<>{}\[\]|\\@#]|:\w+:|\(\)|>>>|\s{2}")
    assert [text for text in load_docs().texts if marks.search(text)] == []


def test_sentences_are_of_sensible_length() -> None:
    sizes = [len(text.split()) for text in load_docs().texts]
    assert min(sizes) >= 6 and max(sizes) <= 60
    assert 10 <= sum(sizes) / len(sizes) <= 20


@pytest.mark.parametrize(
    "sentence",
    [
        "The name is rebound if it was already bound.",
        "It is off by default, because it can be dangerous (i.e. slow) in the end.",
        'The only values understood by this method are "arrow" and "slider".',
    ],
)
def test_prose_is_kept(sentence: str) -> None:
    assert is_prose(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "Too short a one.",
        "this one does not begin with a capital letter at all.",
        "This one does not end as a sentence of the language",
        "The call to foo(x) is made in the body of the loop.",
        "The attribute a.x is set in the body of the class.",
        "The value of my_name is set in the body of the loop.",
        "The method getValue is called in the body of the loop.",
        "The file in /usr/lib is read in the body of the loop.",
        "The opening (parenthesis is never closed in the body of it.",
        "Foo Bar Baz Qux Quux Corge Grault Garply the a.",
        "Use the option --verbose to see what it is doing.",
    ],
)
def test_code_and_fragments_are_left_behind(sentence: str) -> None:
    assert not is_prose(sentence)


def test_markup_is_taken_off_and_code_blocks_are_left_out() -> None:
    text = """
    The :meth:`~list.sort` method is *stable* in the sense of ``order``.
    It keeps equal items as they are.

    >>> [3, 1].sort()

    * The first item of this list is a sentence.
    * The second item of this list is one too.
    """
    assert list(prose_sentences(text)) == [
        "It keeps equal items as they are.",
        "The first item of this list is a sentence.",
        "The second item of this list is one too.",
    ]
    assert next(paragraphs(text)).startswith("The list.sort method is stable in the sense of order")
