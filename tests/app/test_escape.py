import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.app.escape import WORD_JOINER, escape_markdown


@pytest.mark.parametrize(
    "text", ["[a](b)", "**x**", "<b>", "$x$", ":red[x]", "`x`", "# x", "~~x~~"]
)
def test_markup_is_escaped_character_by_character(text: str) -> None:
    escaped = escape_markdown(text)
    assert escaped.replace("\\", "") == text
    assert all(f"\\{c}" in escaped for c in set(text) & set("[]()*<>$`#~:"))


@pytest.mark.parametrize("url", ["http://a.b", "HTTPS://a.b", "www.a.b", "me@a.b"])
def test_bare_urls_and_addresses_do_not_become_links(url: str) -> None:
    assert WORD_JOINER in escape_markdown(url)


@given(st.text(max_size=60))
def test_text_stays_on_one_line_and_loses_nothing_but_white_space(text: str) -> None:
    escaped = escape_markdown(text)
    assert "\n" not in escaped
    visible = escaped.replace("\\", "").replace(WORD_JOINER, "")
    expected = " ".join(text.replace("\\", "").replace(WORD_JOINER, "").split())
    assert " ".join(visible.split()) == expected
