"""Prose sentences in documentation."""

import pytest

from cutaway.data.prose import is_prose, paragraphs, prose_sentences

GOOD = "The value of the option is used when there is no other value for it."


def test_sentences_come_in_order_without_markup() -> None:
    text = f"{GOOD} This is the *second* sentence of the ``same`` paragraph in it.\n\n* {GOOD}"
    assert list(prose_sentences(text)) == [
        GOOD, "This is the second sentence of the same paragraph in it.", GOOD,
    ]  # fmt: skip


def test_roles_become_their_text() -> None:
    (line,) = paragraphs("It is the :class:`~pathlib.Path` of the file.")
    assert line == "It is the pathlib.Path of the file."


@pytest.mark.parametrize("block", [">>> print(1)\n1", "x = 3\ny = 4", "====\nTitle", "$ make all"])
def test_code_blocks_are_left_out(block: str) -> None:
    assert list(paragraphs(f"Before.\n\n{block}\n\nAfter.")) == ["Before.", "After."]


@pytest.mark.parametrize(
    "sentence",
    [
        GOOD,
        "If it is not there, an error is raised, and the file is not changed at all.",
    ],
)
def test_plain_sentences_are_prose(sentence: str) -> None:
    assert is_prose(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "The end.",
        GOOD[:-1],
        GOOD.replace("option", "call(x)"),
        GOOD.replace("option", "camelCase"),
        GOOD.replace("option", "os.path"),
        GOOD.replace("The value", "Note the value"),
        GOOD.replace("option", "option (open"),
        "ABC DEF GHI JKL MNO PQR the of.",
        "Birds fly south every single winter season again.",
        " ".join(["The", *["word"] * 60, "is the end."]),
    ],
    ids=range(11),
)
def test_fragments_code_and_notices_are_not(sentence: str) -> None:
    assert not is_prose(sentence)
