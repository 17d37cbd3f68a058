"""Tables: columns, rows and where they came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData
from cutaway.data.table import (
    MAX_ROWS_SHOWN,
    Table,
    concat_tables,
    describe_rows,
    table_from_records,
    table_from_rows,
    truncate,
)

ONE = Table("a.tsv", {"x": [1, 2], "y": [3, 4]}, notes=("first",))
TWO = Table("b.tsv", {"y": [5], "x": [6], "z": [7]}, notes=("second",))


def test_concatenated_tables_keep_their_rows_notes_and_origins() -> None:
    both = concat_tables("folder", [ONE, TWO])
    assert both.columns == {"x": [1, 2, 6], "y": [3, 4, 5]}
    assert both.notes == ("first", "second", "columns not in every file left out: z")
    assert [both.locate(row) for row in range(3)] == [
        "row 1 of a.tsv", "row 2 of a.tsv", "row 1 of b.tsv",
    ]  # fmt: skip


def test_tables_without_a_common_column_are_refused_with_their_columns() -> None:
    with pytest.raises(BadData, match=r"a\.tsv: Its columns: 'x', 'y'\..*c\.tsv: Its columns: 'q'"):
        concat_tables("folder", [ONE, Table("c.tsv", {"q": [1]})])


@given(st.lists(st.integers(0, 2), unique=True).map(sorted))
def test_selected_rows_still_know_their_file(rows: list[int]) -> None:
    both = concat_tables("folder", [ONE, TWO])
    some = both.select(rows, "why")
    assert some.columns["x"] == [both.columns["x"][row] for row in rows]
    files = [both.locate(row).split(" of ")[1] for row in rows]
    assert [some.locate(i).split(" of ")[1] for i in range(len(rows))] == files
    assert some.notes[-1] == "why"


def test_an_unknown_column_gets_a_suggestion_and_the_list() -> None:
    with pytest.raises(BadData, match=r"no column 'label'. Did you mean 'labels'\? Its columns"):
        Table("t", {"labels": []}).column("label")


def test_many_columns_are_listed_in_part() -> None:
    table = Table("t", {f"c{i}": [] for i in range(25)})
    assert table.list_columns().endswith("'c19' and 5 more.")
    assert Table("t", {}).list_columns() == "Its columns: none."


def test_rows_may_lack_keys() -> None:
    assert table_from_rows("t", [{"a": 1}, {"b": 2}]).columns == {"a": [1, None], "b": [None, 2]}


def test_records_need_distinct_column_names() -> None:
    assert table_from_records("t", ["a", "b"], [["1", "2"]]).columns == {"a": ["1"], "b": ["2"]}
    assert table_from_records("t", ["a", "b"], []).columns == {"a": [], "b": []}
    with pytest.raises(BadData, match="more than one column called 'a'"):
        table_from_records("t", ["a", "a"], [["1", "2"]])


@pytest.mark.parametrize("extra", [0, 1, 4])
def test_a_message_names_the_first_rows_and_counts_the_rest(extra: int) -> None:
    text = describe_rows(ONE, range(MAX_ROWS_SHOWN + extra))
    assert text.count("row ") == MAX_ROWS_SHOWN
    assert text.endswith(f"and {extra} more") == bool(extra)


@given(st.text(), st.integers(1, 30))
def test_truncated_text_is_never_longer_and_keeps_its_beginning(text: str, limit: int) -> None:
    short = truncate(text, limit)
    assert len(short) <= limit or short == text
    assert text.startswith(short.removesuffix("…")) or short == text
