import polars as pl
import pytest

from cutaway.catalog import methods
from cutaway.report.method_table import MethodTable, table_of
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
