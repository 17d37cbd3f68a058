import csv
import io
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.report import tables
from tests.report.fake_runs import FakeRecord, probe_rows

NASTY = "a|b <i>&_{}$%#\\~^*`\x1b[31m\nc"


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame({"name": [NASTY, "plain"], "mean": [0.78123, None], "repeats": [4.0, 3.0]})


def test_a_summary_has_one_line_per_cell_and_metric() -> None:
    rows = probe_rows(layers=("1", "2"), metrics=("accuracy", "f1"), baselines=False)
    found = tables.summarize_cells(rows)
    assert found.height == 4
    assert found.columns == list(tables.SUMMARY_COLUMNS)
    assert (found["low"] <= found["mean"]).all() and (found["mean"] <= found["high"]).all()


def test_the_interval_of_a_mean_over_seeds_is_that_of_the_seeds() -> None:
    seeds = {"regulariser": "ewc", "metric": "exact_match", "seed": [0, 1, 2]}
    rows = pl.DataFrame(seeds | {"value": [0.9, 0.7, 0.8], "low": [0.88, 0.6, 0.7], "high": 0.95})
    found = tables.summarize_cells(rows).row(0, named=True)
    # 0.1 / sqrt(3) times 4.303, the t of two degrees of freedom; a share ends at 1.
    assert (found["mean"], found["repeats"]) == (pytest.approx(0.8), 3)
    assert (found["low"], found["high"]) == (pytest.approx(0.8 - 0.2484, abs=1e-3), 1.0)
    one = tables.summarize_cells(rows.head(1)).row(0, named=True)
    assert (one["low"], one["high"]) == (0.88, 0.95)


def test_a_ranking_is_best_first_and_lists_each_text_baseline_once() -> None:
    rows = probe_rows(models=("tiny-lm", "small-lm"), sizes=(140, 1400))
    found = tables.ranking_table(rows, FakeRecord(rows), most=5)
    assert found["mean"].is_sorted(descending=True)
    assert sorted(found.filter(pl.col("kind") == "baseline")["classifier"]) == [
        "bow",
        "majority",
        "tfidf",
    ]
    assert found.filter(pl.col("kind") == "probe").height == 5
    assert "model" in found.columns and "data" not in found.columns


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
