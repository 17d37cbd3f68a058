import pytest

from cutaway.core.errors import BadSpec
from cutaway.data.templates import TEXT_EDITS, check_template, fill_template


def test_braces_in_a_text_are_only_text() -> None:
    assert (
        fill_template("{text} It was {mask}.", "a {mask} {x}", mask="M") == "a {mask} {x} It was M."
    )


@pytest.mark.parametrize(
    ("edit", "text", "expected"),
    [
        ("bare", "A text.", "A text"),
        ("bare", "Really?!", "Really"),
        ("bare", "...", "..."),
        ("small", "The end.", "the end."),
        ("small", "NASA said.", "NASA said."),
        ("small", "I went.", "I went."),
        ("small", "", ""),
    ],
)
def test_edits_fit_a_text_into_a_sentence(edit: str, text: str, expected: str) -> None:
    assert TEXT_EDITS[edit](text) == expected


def test_a_template_for_pairs_needs_a_pair() -> None:
    with pytest.raises(BadSpec, match="needs a pair"):
        fill_template("{text}? {mask}, {pair}", "a", mask="M")


@pytest.mark.parametrize(
    ("template", "wrong"),
    [
        ("{text}", r"lacks \{mask\}"),
        ("It was", r"lacks \{text\}, \{mask\}"),
        ("{text} {mask} {pair}", r"has \{pair\}"),
        ("{text} {} {mask}", r"has \{\}"),
    ],
)
def test_a_template_with_other_fields_is_refused(template: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong + r": expected exactly the fields \{text\}, \{mask"):
        check_template(template, pair=False, mask=True)
