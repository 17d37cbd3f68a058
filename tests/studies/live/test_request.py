import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.studies.live.request import MAX_TEXT_LENGTH, LiveSpec


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_text_is_refused(text: str) -> None:
    with pytest.raises(BadSpec, match="text is empty"):
        build_spec(LiveSpec, {"text": text})


def test_a_long_text_is_truncated() -> None:
    assert len(LiveSpec(text="x" * (MAX_TEXT_LENGTH + 1)).text) == MAX_TEXT_LENGTH


def test_words_are_separated_by_commas() -> None:
    assert LiveSpec(text="t", words=" good, bad ,,").words == ("good", "bad")


@pytest.mark.parametrize("top", [0, 101])
def test_the_number_of_words_per_cell_is_bounded(top: int) -> None:
    with pytest.raises(BadSpec, match="top"):
        build_spec(LiveSpec, {"text": "t", "top": top})
