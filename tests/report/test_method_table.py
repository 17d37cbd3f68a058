import polars as pl
import pytest

from cutaway.catalog import methods
from cutaway.report.method_table import Grid, MethodTable, pivot_grid, table_of
from cutaway.report.summary import summarize_cells
from tests.report.fake_runs import FakeRecord

ROWS = pl.DataFrame({"layer": range(30), "metric": "kl", "value": 1.0})


@pytest.mark.parametrize("method", methods())
def test_every_method_has_its_tables(method: str) -> None:
    assert isinstance(table_of(method), MethodTable)


def test_an_unknown_method_has_only_a_summary() -> None:
    assert table_of("elsewhere") == MethodTable()
    assert MethodTable().summary is summarize_cells


def test_a_ranking_comes_before_highlights_and_highlights_before_the_first_cells() -> None:
    record, one = FakeRecord(ROWS), ROWS.head(1)
    ranked = MethodTable(ranking=lambda rows, record, most: rows.head(most), highlights=ROWS.head)
    assert ranked.read_first(ROWS, record, most=3).height == 3
    assert MethodTable(highlights=lambda rows: one).read_first(ROWS, record).equals(one)
    assert MethodTable(highlights=lambda rows: rows.clear()).read_first(ROWS, record).height == 24


def test_a_grid_has_a_line_per_value_and_a_column_per_other_value() -> None:
    rows = pl.DataFrame({"layer": [1, 0, 0], "kind": ["id", "id", "mat"], "value": [3.0, 1.0, 2.0]})
    [(title, grid)] = pivot_grid("kl", rows, down="layer", across="kind")
    assert title == "kl"
    assert grid.to_dicts() == [
        {"layer": 0, "id": 1.0, "mat": 2.0},
        {"layer": 1, "id": 3.0, "mat": None},
    ]
    assert pivot_grid("kl", rows.clear(), down="layer", across="kind") == []


def test_a_terminal_shows_grids_else_what_to_read_first() -> None:
    record, grid = FakeRecord(ROWS), Grid("a title", ROWS.head(2))
    assert MethodTable(grids=lambda rows, record: [grid]).terminal_grids(ROWS, record) == [grid]
    for without in (MethodTable(grids=lambda rows, record: []), MethodTable()):
        [(title, table)] = without.terminal_grids(ROWS, record)
        assert title == "" and table.equals(without.read_first(ROWS, record, most=8))
