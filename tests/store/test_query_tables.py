"""Tests of the tables of a query."""

import polars as pl
import pytest

from cutaway.core.errors import Corrupt
from cutaway.store.query_tables import intact_records, mixed_types, quoted_name, run_line
from cutaway.store.results import results
from tests.store.samples import keep


def test_columns_meet_by_name_and_numbers_beside_text_become_text(tmp_path) -> None:
    keep(tmp_path, pl.DataFrame({"layers": ["1"], "value": [0.5]}), address="a1")
    keep(tmp_path, pl.DataFrame({"layers": [2], "kind": ["mat"]}), method="shortcut", address="b2")
    found = results(tmp_path).query("select * from rows order by address")
    assert found.columns[:2] == ["method", "address"]
    assert found.select("address", "layers", "value", "kind").rows() == [
        ("a1", "1", 0.5, None), ("b2", "2", None, "mat"),
    ]  # fmt: skip


def test_only_the_named_tables_are_shown(tmp_path) -> None:
    keep(tmp_path, address="a1")
    shown = results(tmp_path).query("show tables")["name"].to_list()
    assert sorted(shown) == ["rows", "runs", "samples", "scores", "splits"]
    kinds = results(tmp_path).query("show runs").select("column_name", "column_type").rows()
    assert ("summary", "JSON") in kinds and ("seed", "BIGINT") in kinds


def test_columns_of_several_kinds_are_found() -> None:
    tables = [{"a": "number", "b": "text"}, {"a": "text", "c": "text"}, {"b": "text"}]
    assert mixed_types(tables) == {"a"}


def test_a_run_without_an_integer_seed_has_none(tmp_path) -> None:
    line = run_line(keep(tmp_path, seed=[1, 2])).row(0, named=True)
    assert line["seed"] is None and '"seed": [' in line["brief"]
    assert run_line(keep(tmp_path, address="b", seed=2**70))["seed"].to_list() == [None]


def test_damaged_tables_are_named_and_none_at_all_is_an_error(tmp_path, capsys) -> None:
    good, bad = keep(tmp_path, address="a1"), keep(tmp_path, address="b2")
    (bad.path / "rows.parquet").write_bytes(b"junk")
    assert intact_records([good, bad]) == [good] and "b2" in capsys.readouterr().err
    with pytest.raises(Corrupt, match="checksum"):
        intact_records([good, bad], strict=True)
    with pytest.raises(Corrupt, match="None of 1 tables"):
        intact_records([bad])


def test_names_are_quoted() -> None:
    assert quoted_name('a"b') == '"a""b"'
