import csv
import io
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cutaway.report import tables

NASTY = "a|b <i>&_{}$%#\\~^*`\x1b[31m\nc"


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame({"name": [NASTY, "plain"], "mean": [0.78123, None], "repeats": [4.0, 3.0]})


@pytest.mark.parametrize("kind", tables.TABLE_FORMATS)
def test_every_format_shows_every_row_on_one_line(frame, kind: str) -> None:
    text = tables.TABLE_FORMATS[kind](frame)
    if kind == "csv":
        parsed = list(csv.DictReader(io.StringIO(text)))
        assert parsed[0]["name"] == NASTY and float(parsed[0]["mean"]) == 0.78123
    else:
        lines = [line for line in text.splitlines() if "plain" in line or "0.781" in line]
        assert len(lines) == 2
        assert "\x1b" not in text


def test_markdown_cells_can_not_break_out_of_the_table(frame) -> None:
    for line in tables.to_markdown(frame).splitlines():
        assert len(re.findall(r"(?<!\\)\|", line)) == len(frame.columns) + 1
        assert "<" not in line


@given(st.text(max_size=30))
def test_latex_never_holds_a_bare_special_character(text: str) -> None:
    body = tables.to_latex(pl.DataFrame({"x": [text]})).splitlines()[4]
    cell = body.removesuffix(r" \\")
    # Take our own escapes away: nothing that LaTeX acts on may be left.
    rest = re.sub(r"\\text\w+\{2?\}|\\ldots\{\}|\\[&%$#_{}]", "", cell)
    assert not set(rest) & set("\\&%$#_{}~^")


@given(st.text(max_size=40))
def test_terminal_text_has_no_control_characters(text: str) -> None:
    assert all(ord(c) >= 32 and ord(c) != 127 for c in tables.strip_control_characters(text))


def test_rich_tables_take_markup_as_text() -> None:
    assert "[red]x[/red]" in tables.to_text(pl.DataFrame({"name": ["[red]x[/red]"]}))


def test_a_table_that_is_not_for_a_terminal_shows_every_cell_whole() -> None:
    frame = pl.DataFrame({f"column {k}": [f"{k}" * 40] for k in range(9)})
    _, line = tables.to_text(frame).splitlines()
    assert line.split() == [f"{k}" * 40 for k in range(9)]
    assert "…" in tables.to_text(frame, width=80)


def test_what_all_lines_share_is_split_off_with_short_paths() -> None:
    frame = pl.DataFrame(
        {"model": ["/a/b/gpt"] * 2, "kind": ["x", "y"], "lambda": [None, None], "value": [1.0, 1.0]}
    )
    shared, lines = tables.split_constants(frame)
    assert shared == {"model": "gpt"}
    assert lines.columns == ["kind", "value"], "equal numbers are results, not names"
    shared, lines = tables.split_constants(frame.head(1))
    assert shared == {} and lines["model"].to_list() == ["gpt"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_text_is_never_a_formula(start: str) -> None:
    frame = pl.DataFrame({f"{start}name": [f"{start}1+1"], "value": [-0.5]})
    head, line = csv.reader(io.StringIO(tables.to_csv(frame), newline=""))
    assert head[0] == f"'{start}name"
    assert line == [f"'{start}1+1", "-0.5"]


def test_columns_are_aligned_and_the_widest_are_cut_to_the_width() -> None:
    lines = [["name", "value"], ["日本", "1"], ["a" * 30, "22"]]
    assert tables.aligned_lines(lines, 80)[1:] == [
        "日本" + " " * 26 + "  1", "a" * 30 + "  22",
    ]  # fmt: skip
    cut = tables.aligned_lines(lines, 20)
    assert cut[2] == "a" * 12 + "…  22" and max(map(cell_len, cut)) <= 20
    assert tables.aligned_lines(lines, 1)[2] == "…  …"


def test_lists_and_structs_are_written_as_text_in_every_format() -> None:
    frame = pl.DataFrame({"a": [[1, 2], None], "b": [{"k": "=x"}, {"k": "y"}], "c": [1, 2]})
    for to_text in tables.TABLE_FORMATS.values():
        assert "[1, 2]" in to_text(frame).replace("\\", "")
    assert tables.to_csv(frame).splitlines()[0] == "a,b,c"
