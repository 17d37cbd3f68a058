import pytest

from cutaway.core.errors import BadData
from cutaway.data.columns import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, choose_columns, part_column
from cutaway.data.table import Table


def table(*names: str) -> Table:
    return Table("t.tsv", {name: ["x"] for name in names})


@pytest.mark.parametrize("name", TEXT_NAMES)
def test_a_usual_text_name_is_found_in_any_spelling(name: str) -> None:
    assert choose_columns(table("id", name.title())).text == (name.title(),)


@pytest.mark.parametrize("family", PAIR_NAMES)
def test_a_pair_of_texts_is_found(family: tuple[str, str]) -> None:
    chosen = choose_columns(table("label", *family))
    assert (chosen.text, chosen.pair, chosen.label) == ((family[0],), family[1], "label")


@pytest.mark.parametrize("name", ["label", "labels", *LABEL_NAMES])
def test_a_usual_label_name_is_found(name: str) -> None:
    assert choose_columns(table(name, "text")).label == name


def test_label_beats_the_other_label_names() -> None:
    assert choose_columns(table("text", "score", "label", "target")).label == "label"


def test_two_columns_that_make_one_text_are_joined() -> None:
    assert choose_columns(table("label", "title", "description")).text == ("title", "description")


def test_columns_can_be_named_and_joined_by_hand() -> None:
    chosen = choose_columns(table("a", "b", "c", "d"), "a+b", "c", "d")
    assert (chosen.text, chosen.pair, chosen.label) == (("a", "b"), "c", "d")


@pytest.mark.parametrize(
    ("names", "asked", "message"),
    [
        (("text", "sentence"), {}, "'text' or 'sentence' could be the text.*--text-column"),
        (("text", "score", "rating"), {}, "'score' or 'rating' could be the label"),
        (("id", "foo"), {}, r"no column with a usual text name.*Its columns: 'id', 'foo'\."),
        (("text", "label"), {"text": "txt"}, "no column 'txt'. Did you mean 'text'"),
        (("text", "label"), {"label": "lable"}, "no column 'lable'. Did you mean 'label'"),
        (("text",), {"pair": "other"}, "no column 'other'"),
    ],
)
def test_what_is_unclear_is_refused_with_the_columns(names, asked, message: str) -> None:
    with pytest.raises(BadData, match=message):
        choose_columns(table(*names), **asked)


def test_plain_text_needs_no_label() -> None:
    assert choose_columns(table("text", "score", "rating"), labelled=False).label is None


def test_the_part_column_is_found_by_name() -> None:
    assert part_column(table("text", "Split")) == "Split"
    assert part_column(table("text", "label")) is None
