import pytest

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.sentences import sample_sentences, split_sentences

DOCUMENTS = [
    f"Dr. Smith met number {i} at 9 a.m. on Monday. He was glad of it, number {i}. So it goes."
    for i in range(30)
]


def test_abbreviations_end_no_sentence() -> None:
    assert split_sentences(DOCUMENTS[0]) == [
        "Dr. Smith met number 0 at 9 a.m. on Monday.",
        "He was glad of it, number 0.",
        "So it goes.",
    ]


def test_lines_are_joined_and_empty_lines_end_a_sentence() -> None:
    assert split_sentences("One line\nand its end\r\n\r\nAnother one") == [
        "One line and its end",
        "Another one",
    ]


def test_the_seed_decides_the_sample() -> None:
    one, same, other = (sample_sentences(DOCUMENTS, 20, seed=s).texts for s in (1, 1, 2))
    assert one == same != other


def test_sentences_are_distinct_and_of_the_asked_length() -> None:
    sample = sample_sentences(DOCUMENTS, 60, seed=0)
    assert len(set(sample.texts)) == 60
    assert "So it goes." not in sample.texts
    assert "So it goes." in sample_sentences(DOCUMENTS, 61, shortest=3).texts


def test_each_document_gives_one_before_any_gives_two() -> None:
    stories = [" ".join(f"This is line {j} of story {i}." for j in range(5)) for i in range(20)]
    for n, most in ((20, 1), (40, 2)):
        came_from = [text.split()[-1] for text in sample_sentences(stories, n, seed=3).texts]
        assert {came_from.count(story) for story in set(came_from)} == {most}


def test_headings_are_no_sentences() -> None:
    with pytest.raises(BadData, match="0 different sentences"):
        sample_sentences(["= = Career = = = ="], 1)


def test_any_source_of_text_will_do(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(DOCUMENTS))
    by_file = sample_sentences(tmp_path / "a.txt", 10, seed=5)
    by_set = sample_sentences(TextSet("x", tuple(DOCUMENTS)), 10, seed=5)
    assert by_file.texts == by_set.texts == sample_sentences(DOCUMENTS, 10, seed=5).texts
    assert by_file.meta["splitter"].startswith("nupunkt ")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n": 1000}, BadData, "60 different sentences of 4 to 60 words, got n=1000"),
        ({"n": 0}, BadSpec, "n must be at least 1"),
        ({"n": 5, "seed": -1}, BadSpec, "seed must be 0 or more, got -1"),
        ({"n": 5, "shortest": 9, "longest": 3}, BadSpec, "shortest at most longest"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(options, error, message: str) -> None:
    with pytest.raises(error, match=message):
        sample_sentences(DOCUMENTS, **options)


def test_documents_are_strings() -> None:
    with pytest.raises(BadData, match="Document 2 is 3"):
        sample_sentences(["a", 3], 1)
