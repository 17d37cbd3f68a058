"""Tests of the lines of a run with its names."""

import polars as pl

from cutaway.store.run_tables import valid_text, with_run_columns
from tests.store.samples import keep


def test_every_line_names_its_run(tmp_path) -> None:
    record = keep(tmp_path, pl.DataFrame({"layers": ["1", "2"]}), address="a1")
    found = with_run_columns(record, record.rows)
    assert found.columns == ["method", "address", "layers"]
    assert found["address"].to_list() == ["a1", "a1"]


def test_text_that_tables_cannot_hold_is_replaced() -> None:
    assert valid_text("a\udc80b") == "a?b"
