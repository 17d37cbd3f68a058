"""The lens as a web page and as a table: tokens are data, never markup."""

import json
import re

import pytest

from cutaway.methods.shortcut.lens_page import lens_page, lens_table, visible_token

LENS = {
    "model": "<b>m</b>",
    "tokens": ["a", " b"],
    "layers": [0, 1],
    "kinds": ["id"],
    "words": {"id": [[["</script>x"], ["y"]], [["\n"], ["w w"]]]},
    "probs": {"id": [[[0.5], [0.25]], [[1.0], [0.1]]]},
    "agree": {"id": [[False, True], [True, True]]},
}


def test_tokens_of_the_model_are_never_markup() -> None:
    page = lens_page(LENS)
    assert page.count("</script>") == 2
    assert "<b>m</b>" not in page


def test_the_terminal_table_has_the_last_layer_on_top_and_stars_for_agreement() -> None:
    header, last, first = lens_table(LENS, "id")
    assert header == ["layer", "a", "·b"]
    assert last == ["1", "↵ 100*", "w·w 10*"]
    assert first == ["0", "</script>x 50", "y 25*"]


def test_the_page_holds_the_complete_grid() -> None:
    data = re.search(r'type="application/json">(.*?)</script>', lens_page(LENS), re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == LENS


@pytest.mark.parametrize(("token", "shown"), [(" a", "·a"), ("\n", "↵"), ("", "∅"), ("ab", "ab")])
def test_spaces_and_line_breaks_are_visible(token, shown) -> None:
    assert visible_token(token) == shown
