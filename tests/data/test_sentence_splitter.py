"""Sentence splitting."""

from importlib.metadata import version

from cutaway.data.sentence_splitter import split_paragraph, splitter_version


def test_abbreviations_and_numbers_do_not_end_a_sentence() -> None:
    text = "Dr. Smith paid 3.50 dollars. He left at 5 p.m. yesterday! Did he return?"
    assert split_paragraph(text) == [
        "Dr. Smith paid 3.50 dollars.", "He left at 5 p.m. yesterday!", "Did he return?",
    ]  # fmt: skip


def test_no_text_has_no_sentences_and_none_is_empty() -> None:
    assert split_paragraph("") == []
    assert all(split_paragraph("One.   Two.  "))


def test_the_version_is_that_of_the_installed_package() -> None:
    assert splitter_version() == f"nupunkt {version('nupunkt')}"
