"""Tests of tables over several runs."""

import polars as pl

from cutaway.store.results import results
from cutaway.store.run_tables import concat_tables, rows_of_runs, valid_text
from tests.store.samples import keep


def test_columns_meet_by_name_and_every_line_names_its_run(tmp_path) -> None:
    keep(tmp_path, pl.DataFrame({"layers": ["1"], "value": [0.5]}), address="a1")
    keep(tmp_path, pl.DataFrame({"layers": [2], "kind": ["mat"]}), method="shortcut", address="b2")
    found = rows_of_runs(list(results(tmp_path))).sort("address")
    assert found.columns[:2] == ["method", "address"]
    assert found.select("address", "layers", "value", "kind").rows() == [
        ("a1", "1", 0.5, None), ("b2", "2", None, "mat"),
    ]  # fmt: skip


def test_no_runs_are_a_table_without_lines() -> None:
    assert concat_tables([]).columns == ["method", "address"]


def test_text_that_tables_cannot_hold_is_replaced() -> None:
    assert valid_text("a\udc80b") == "a?b"
