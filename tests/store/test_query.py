"""Tests of SQL over all runs."""

import resource
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec, Corrupt
from cutaway.store.query import query
from cutaway.store.results import results
from tests.store.samples import keep, rows


@pytest.fixture
def runs(tmp_path):
    keep(tmp_path, address="a1", summary={"best": 0.75})
    keep(tmp_path, address="b2", table=rows(0.25, 2), summary={"best": 0.5})
    shortcut = pl.DataFrame({"layers": [3, 4, 5], "lambda": [0.1, 0.2, 0.3], "value": [1, 2, 3]})
    keep(tmp_path, method="shortcut", address="c3", table=shortcut, summary={"r2": 1})
    return results(tmp_path)


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("select count(*) from runs", [(3,)]),
        ("select count(*) from rows", [(9,)]),
        ("select sum(value) from rows group by address order by address", [(2.0,), (0.5,), (6.0,)]),
        ("with x as (from rows where method = 'shortcut') select max(layers) from x", [("5",)]),
        ("select summary->>'$.best' from runs where address = 'b2'", [("0.5",)]),
        ("select (summary->'$.best')::double from runs order by 1 limit 1", [(0.5,)]),
        ("select model, data, seed from runs where address = 'a1'", [("gpt2", "sst2", 3)]),
        ("from runs select address where seconds > 1 order by 1 limit 2", [("a1",), ("b2",)]),
        ('select "lambda" from rows where layers = \'3\' and method = \'shortcut\'', [(0.1,)]),
        ("select address from runs join rows using (address) where metric is null", [("c3",)] * 3),
        ("SELECT 1;", [(1,)]),
        ("select 1 -- ; drop table runs", [(1,)]),
    ],
)  # fmt: skip
def test_questions_are_answered(runs, sql, answer):
    assert runs.query(sql).rows() == answer


def test_the_order_asked_for_is_the_order_given(runs):
    frame = runs.query("select value from rows order by value desc")
    assert frame["value"].to_list() == sorted(frame["value"].to_list(), reverse=True)


@pytest.mark.parametrize(
    "sql", ["show tables", "show all tables", "describe rows", "describe runs"]
)
def test_tables_are_described(runs, sql):
    said = str(runs.query(sql).to_dicts())
    assert "rows" in said or "address" in said


def test_no_runs_are_an_empty_answer(tmp_path):
    assert results(tmp_path).query("select * from runs, rows").shape[0] == 0


ATTACKS = [
    "attach '{secret}' as other",
    "attach ':memory:' as other",
    "copy rows to '{target}'",
    "copy (select 1) to '{target}' (format csv)",
    "export database '{target}'",
    "select * from read_csv('{secret}')",
    "select * from read_text('{secret}')",
    "select * from read_blob('{secret}')",
    "select * from read_json('{secret}')",
    "select * from read_parquet('{secret}')",
    "select * from '{secret}'",
    "select * from '{secret}.csv'",
    "select * from glob('{folder}/*')",
    "select * from read_csv('http://localhost/x.csv')",
    "select * from query('select * from read_text(''{secret}'')')",
    "select * from query_table(['{secret}'])",
    "with x as (select * from read_text('{secret}')) select * from x",
    "select * from runs union all by name select * from read_text('{secret}')",
    "select (select content from read_text('{secret}'))",
    "install httpfs",
    "load httpfs",
    "load '{secret}'",
    "pragma database_list",
    "pragma enable_external_access",
    "set enable_external_access = true",
    "reset lock_configuration",
    "call pragma_version()",
    "create table x as select 1",
    "create view x as select 1",
    "create secret s (type s3)",
    "drop table runs",
    "delete from runs",
    "update runs set model = 'x'",
    "insert into runs select * from runs",
    "alter table runs drop column model",
    "truncate runs",
    "prepare p as select 1",
    "begin",
    "checkpoint",
    "vacuum",
    "use memory",
    "detach memory",
    "select 1; select 2",
    "select 1; drop table runs",
    "select getenv('HOME')",
    "explain analyze select * from read_text('{secret}')",
    "select * from records",
    "select * from frame",
    "select * from listed",
    "",
    ";",
    "   ",
    "select",
    "nonsense",
    "select * from nothing",
    "select nothing from rows",
    "select 'open",
    "select \ud800",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_outside_the_two_tables_can_be_read_or_changed(tmp_path, runs, attack):
    secret, target = tmp_path / "secret", tmp_path / "written"
    for path in (secret, tmp_path / "secret.csv"):
        path.write_text("a,b\nhidden,1\n")
    sql = attack.format(secret=secret, target=target, folder=tmp_path)
    with pytest.raises(BadSpec):
        runs.query(sql)
    assert not target.exists()
    assert len(runs.query("select * from runs")) == 3


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_any_text_is_an_answer_or_a_bad_spec(text):
    try:
        assert isinstance(query(Path("no such folder"), text), pl.DataFrame)
    except BadSpec as error:
        assert str(error)


def test_the_error_has_duckdbs_own_words(runs):
    with pytest.raises(BadSpec, match="valeu"):
        runs.query("select valeu from rows")


def test_a_query_that_takes_too_long_is_stopped(runs):
    start = time.monotonic()
    with pytest.raises(BadSpec, match="seconds"):
        query(runs.folder, "select count(*) from range(10000000) a, range(1000000) b", seconds=0.3)
    assert time.monotonic() - start < 20


def test_a_huge_answer_is_refused(runs):
    with pytest.raises(BadSpec, match="Add a limit"):
        runs.query("select * from range(100000000)")


def damage(folder, *addresses):
    for path in (path for one in addresses for path in folder.glob(f"*/{one}/rows.parquet")):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def test_a_damaged_table_is_named_and_left_out(tmp_path, runs, capsys):
    damage(tmp_path, "b2")
    found = results(tmp_path).query("select distinct address from rows order by 1")
    assert found["address"].to_list() == ["a1", "c3"]
    assert "b2/rows.parquet' fails its checksum" in capsys.readouterr().err
    assert len(results(tmp_path).query("select * from runs")) == 3
    with pytest.raises(Corrupt, match="b2"):
        results(tmp_path).query("select * from rows", strict=True)


def test_a_query_fails_when_no_table_can_be_read(tmp_path, runs):
    damage(tmp_path, "a1", "b2", "c3")
    with pytest.raises(Corrupt, match=r"None of 3 tables rows\.parquet"):
        results(tmp_path).query("select * from rows")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select repeat('x', 2000000000)", "more than 1.5 GB"),
        ("select repeat('x', 300000000) from range(1000)", "more than 1.5 GB"),
        ("select repeat('x', 20000000)", "larger than 256 MB"),
        ("select repeat('x', 5000) || range from range(100000)", "larger than 256 MB"),
    ],
)
def test_an_answer_is_bounded_before_it_is_copied(runs, sql, reason):
    before = resource.getrlimit(resource.RLIMIT_AS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadSpec, match=reason):
        runs.query(sql)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1.7 * 2**20
    assert runs.query("select count(*) from runs").item() == 3


@pytest.mark.parametrize(
    ("odd", "seed"),
    [
        ({"seed": 2**63}, None),
        ({"seed": -(2**63)}, -(2**63)),
        ({"seed": [1, 2]}, None),
        ({"seconds": 10**400}, 3),
        ({"model": {"name": "caf\udce9"}, "command": "cutaway \ud800"}, 3),
        ({"spec": {"\udfff": "\ud800"}, "data": {"name": "\ud800"}}, 3),
    ],
)
def test_a_run_with_what_no_table_holds_leaves_the_others_readable(tmp_path, runs, odd, seed):
    keep(tmp_path, address="d4", **odd)
    found = results(tmp_path)
    assert found.query("select count(*) from runs").item() == 4
    assert found.query("select seed from runs where address = 'd4'").item() == seed
    assert found.query("select count(*) from rows").item() == 13


@pytest.fixture
def sampled(tmp_path):
    def table(**columns):
        path = tmp_path / "t.parquet"
        pl.DataFrame(columns).write_parquet(path)
        return path.read_bytes()

    one = table(row=[0, 1], truth=["a", "b"], answer=["a", "c"], repeat=[0, 0])
    keep(tmp_path / "runs", address="a1", files={"samples.parquet": one})
    two = table(row=[0], tokens=[["x", "y"]], agree=[True], repeat=["one"])
    files = {"samples.parquet": two, "splits.parquet": table(set=["docs"], row=[7])}
    keep(tmp_path / "runs", method="shortcut", address="b2", files=files)
    keep(tmp_path / "runs", address="c3")
    return results(tmp_path / "runs")


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("select method, address, count(*) from samples group by all order by 1",
         [("probe", "a1", 2), ("shortcut", "b2", 1)]),
        ("select row from samples where truth != answer", [(1,)]),
        ("select tokens[2] from samples where agree", [("y",)]),
        ("select distinct repeat from samples order by 1", [("0",), ("one",)]),
        ("select address, \"set\", row from splits", [("b2", "docs", 7)]),
        ("select count(*) from samples join rows using (address)", [(12,)]),
    ],
)  # fmt: skip
def test_samples_and_splits_of_all_runs_are_tables(sampled, sql, answer):
    assert sampled.query(sql).rows() == answer


def test_samples_are_described_and_empty_without_runs_that_have_them(sampled, runs):
    assert "samples" in str(sampled.query("show tables").to_dicts())
    assert "tokens" in str(sampled.query("describe samples").to_dicts())
    assert runs.query("select * from samples").shape == (0, 2)


def test_changed_samples_are_left_out(sampled, capsys):
    path = sampled.get("b2").path / "samples.parquet"
    path.write_bytes(path.read_bytes() + b"?")
    assert sampled.query("select distinct address from samples").rows() == [("a1",)]
    assert "fails its checksum" in capsys.readouterr().err
    assert sampled.query("select count(*) from splits").item() == 1
