import csv

import pytest

from cutaway.core.errors import BadData
from cutaway.data.delimited import is_csv_quoted, read_csv, read_tsv, without_header
from cutaway.data.table import Table

RAGGED = "text\tlabel\na\t0\nb\t1\textra\n"


def columns(table: Table) -> dict[str, list[str]]:
    return table.columns


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_gives_the_same_table(end: str) -> None:
    table = read_tsv("t.tsv", end.join(["text\tlabel", "good\t1", "bad\t0", ""]))
    assert columns(table) == {"text": ["good", "bad"], "label": ["1", "0"]}


def test_quotes_in_a_tsv_are_ordinary_characters() -> None:
    table = read_tsv("t.tsv", 'text\tlabel\n" the witness " said\t1\n"so\t0\n"all"\t0\n')
    assert table.columns["text"] == ['" the witness " said', '"so', '"all"']
    assert table.notes == ()


def test_quotes_that_a_csv_writer_made_are_undone_and_noted() -> None:
    table = read_tsv("t.tsv", 'text\tlabel\n"a ""fine"" film"\t1\nplain\t0\n')
    assert table.columns["text"] == ['a "fine" film', "plain"]
    assert "CSV quotes" in table.notes[0]


def test_one_badly_quoted_field_makes_all_quotes_ordinary() -> None:
    assert is_csv_quoted([['"a ""b"" c"']])
    assert not is_csv_quoted([['"a ""b"" c"'], ['" not closed']])
    assert not is_csv_quoted([['"just quoted"']])


@pytest.mark.parametrize("inner", ["one\ttwo", "one\ntwo", "one\n\ntwo"])
def test_a_quoted_tsv_field_may_hold_tabs_or_lines(inner: str) -> None:
    table = read_tsv("t.tsv", f'text\tlabel\n"{inner}"\t1\nplain\t0\n')
    assert columns(table) == {"text": [inner, "plain"], "label": ["1", "0"]}


def test_a_line_separator_inside_a_text_does_not_end_the_row() -> None:
    table = read_tsv("t.tsv", "text\tlabel\na\u2028b\x0cc\t1\n")
    assert table.columns["text"] == ["a\u2028b\x0cc"]


def test_a_row_of_another_width_is_named() -> None:
    with pytest.raises(BadData, match=r"t\.tsv, row 2: 3 fields.*names 2.*'text', 'label'"):
        read_tsv("t.tsv", RAGGED)
    with pytest.raises(BadData, match=r"t\.csv, row 2: 3 fields"):
        read_csv("t.csv", RAGGED.replace("\t", ","))


def test_blank_lines_are_counted_and_rows_of_empty_fields_are_kept() -> None:
    table = read_tsv("t.tsv", "text\tlabel\n\na\t1\n\n\nb\t0\n\t\n")
    assert table.columns["text"] == ["a", "b", ""]
    assert "3 blank lines left out" in table.notes[0]


def test_a_csv_field_may_hold_commas_quotes_and_lines() -> None:
    table = read_csv("t.csv", 'text,label\n"a, ""b""\nc",1\n')
    assert columns(table) == {"text": ['a, "b"\nc'], "label": ["1"]}


@pytest.mark.parametrize("text", ['text,label\n"open,1\nb,0\n', 'text,label\n"a"b,1\n'])
def test_broken_quotes_are_refused_with_their_line(text: str) -> None:
    with pytest.raises(BadData, match=r"t\.csv, line \d: broken CSV quoting"):
        read_csv("t.csv", text)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_csv_with_another_delimiter_is_read_and_noted(delimiter: str) -> None:
    table = read_csv("t.csv", f"text{delimiter}label\na, b{delimiter}1\n")
    assert columns(table) == {"text": ["a, b"], "label": ["1"]}
    assert "not by commas" in table.notes[0]


def test_a_huge_field_is_read_and_the_limit_of_csv_is_put_back() -> None:
    before = csv.field_size_limit()
    huge = "word " * 200_000
    assert read_csv("t.csv", f'text,label\n"{huge}",1\n').columns["text"] == [huge]
    assert csv.field_size_limit() == before


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadData, match="more than one column called 'text'"):
        read_tsv("t.tsv", "text\ttext\na\tb\n")


@pytest.mark.parametrize("read", [read_tsv, read_csv])
def test_an_empty_file_is_refused(read) -> None:
    with pytest.raises(BadData, match="no rows"):
        read("t", "\n\n")


def test_a_file_without_a_header_keeps_its_first_line() -> None:
    table = without_header(read_csv("t.csv", "1,good\n0,bad\n"), ("label", "text"))
    assert columns(table) == {"label": ["1", "0"], "text": ["good", "bad"]}
