"""Tests of all runs."""

import hashlib
import json
import subprocess
import sys
import time

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, Missing
from cutaway.core.spec import Spec
from cutaway.store import files
from cutaway.store.results import find_record, parquet_bytes, results, run_progress, save_record
from tests.store.samples import ADDRESS, DISK, fields, keep, rows


class _Spec(Spec):
    model: str = "gpt2"


def test_a_saved_run_is_found(tmp_path):
    record = keep(tmp_path)
    assert record.path == tmp_path / "probe" / ADDRESS
    assert find_record(tmp_path, "probe", ADDRESS) == record
    assert list(results(tmp_path)) == [record]
    assert sorted(p.name for p in record.path.iterdir()) == ["result.json", "rows.parquet"]


def test_a_run_that_was_never_made_is_not_found(tmp_path):
    assert find_record(tmp_path, "probe", ADDRESS) is None
    assert len(results(tmp_path / "nowhere")) == 0


def test_result_json_holds_checksums_that_any_tool_can_check(tmp_path):
    record = keep(tmp_path, files={"a.txt": b"text"})
    content = json.loads((record.path / "result.json").read_text())
    for name, held in content["files"].items():
        data = (record.path / name).read_bytes()
        assert held == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    assert set(content["files"]) == {"rows.parquet", "a.txt"}


def test_the_first_whole_run_is_kept(tmp_path):
    first = keep(tmp_path, summary={"best": 1})
    again = keep(tmp_path, table=rows(0.1), summary={"best": 2})
    assert again == first
    assert again.rows.equals(rows(0.5))


@pytest.mark.parametrize("spoil", ["result.json", "rows.parquet"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_run_that_is_not_whole_is_replaced(tmp_path, spoil, how):
    path = keep(tmp_path).path / spoil
    path.unlink() if how == "gone" else path.write_bytes(path.read_bytes()[:-9])
    assert find_record(tmp_path, "probe", ADDRESS) is None
    record = keep(tmp_path, summary={"best": 2})
    assert record.summary == {"best": 2}
    assert find_record(tmp_path, "probe", ADDRESS) == record
    assert [p.name for p in (tmp_path / "probe").iterdir()] == [ADDRESS]


def test_a_spec_may_be_given_as_it_is(tmp_path):
    assert keep(tmp_path, spec=_Spec(model="bert")).spec == {"model": "bert"}


def test_numbers_json_has_no_word_for_lose_nothing_else(tmp_path):
    record = keep(tmp_path, summary={"nan": float("nan"), 3: 0.25})
    assert record.summary == {"nan": None, "3": 0.25}


def test_saving_ends_the_partial_run(tmp_path):
    pieces = run_progress(tmp_path, "probe", ADDRESS)
    pieces.put("cell", [{"x": 1}])
    assert list(results(tmp_path)) == []
    keep(tmp_path)
    assert pieces.done() == set()
    assert [p.name for p in (tmp_path / "probe").iterdir()] == [ADDRESS]


_SAME = """
import polars as pl, hashlib, sys
from cutaway.store import files
from cutaway.store.results import parquet_bytes
frame = pl.concat([pl.DataFrame({"a": [i, None], "b": ["x", str(i)], "c": [0.1 * i, float("nan")]})
                   for i in range(3000)], rechunk=sys.argv[1] == "1")
print(hashlib.sha256(parquet_bytes(frame)).hexdigest())
"""


def test_the_same_table_is_the_same_bytes_whatever_the_threads_and_chunks():
    said = set()
    for threads in "14":
        env = {"POLARS_MAX_THREADS": threads, "PATH": ""}
        command = [sys.executable, "-c", _SAME, threads]
        said.add(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    assert len(said) == 1


@pytest.mark.parametrize(
    "table", [{"method": ["x"]}, {"Address": ["x"]}, {"x": [[1, 2]]}, {"x": [{"y": 1}]}]
)
def test_rows_that_are_not_tidy_are_refused(table):
    with pytest.raises(BadData, match="tidy"):
        parquet_bytes(pl.DataFrame(table))


@pytest.mark.parametrize("name", ["result.json", "rows.parquet", "../x", "a/../../x", "/tmp/x"])
def test_a_file_can_not_take_the_runs_own_names_or_leave_it(tmp_path, name):
    with pytest.raises(BadSpec):
        keep(tmp_path, files={name: b""})
    assert list(tmp_path.rglob("*")) == []


def test_a_file_that_is_not_there_is_missing_and_leaves_nothing(tmp_path):
    with pytest.raises(Missing, match="no such"):
        keep(tmp_path / "runs", files={"x": tmp_path / "no such"})
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("address", ["../../x", "/etc", ""])
def test_an_address_never_leads_out_of_the_folder(tmp_path, address):
    for use in (find_record, run_progress):
        with pytest.raises(BadSpec):
            use(tmp_path, "probe", address)
    with pytest.raises(BadSpec):
        save_record(tmp_path, rows=rows(), **fields(address=address))


def test_the_newest_comes_first(tmp_path):
    for address in ("b", "c", "a"):
        keep(tmp_path, address=address)
    assert [record.address for record in results(tmp_path)] == ["a", "c", "b"]


def test_a_prefix_is_enough_when_it_fits_one(tmp_path):
    for method, address in (("probe", "ab12"), ("probe", "ab34"), ("graft", "ab34")):
        keep(tmp_path, method=method, address=address)
    runs = results(tmp_path)
    assert runs.get("ab1").address == "ab12"
    assert runs.get("graft/ab").method == "graft"
    with pytest.raises(BadSpec, match="matches 3 runs"):
        runs.get("ab")
    with pytest.raises(Missing, match=r"Did you mean 'ab12'\?"):
        runs.get("ab21")
    with pytest.raises(Missing):
        runs.get("nextword/ab")


def test_an_address_that_begins_another_is_still_reachable(tmp_path):
    for address in ("ab", "abc"):
        keep(tmp_path, address=address)
    assert results(tmp_path).get("ab").address == "ab"


BROKEN = {
    "cut": '{"method": "pro',
    "empty": "",
    "a list": "[]",
    "no fields": "{}",
    "deep": "[" * 9**5,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_run_is_listed_and_the_others_work(tmp_path, text):
    keep(tmp_path, address="good")
    (tmp_path / "probe" / "bad").mkdir()
    (tmp_path / "probe" / "bad" / "result.json").write_text(text)
    runs = results(tmp_path)
    assert [record.address for record in runs] == ["good"]
    assert [path.name for path, _ in runs.broken] == ["bad"]
    assert "result.json" in runs.broken[0][1]
    assert len(runs.query("select * from rows")) == 4


def test_what_is_not_a_run_is_passed_over(tmp_path):
    keep(tmp_path, address="good")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "probe" / "notes.txt").write_text("mine")
    (tmp_path / "probe" / "begun").mkdir()
    (tmp_path / "probe" / f"x.tmp-00000000-1-{'0' * 32}").mkdir()
    runs = results(tmp_path)
    assert len(runs) == 1
    assert runs.broken == []


def test_a_file_instead_of_the_folder_is_refused(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(BadSpec, match="--runs"):
        results(tmp_path / "runs")


@DISK
@given(st.binary(max_size=200))
def test_no_content_of_result_json_stops_the_listing(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "probe" / "x").mkdir(parents=True)
    (folder / "probe" / "x" / "result.json").write_bytes(data)
    assert len(results(folder)) + len(results(folder).broken) == 1


def test_two_thousand_runs_are_listed_in_under_a_second_of_work(tmp_path):
    """Processor time, not the clock on the wall, which also counts what others do meanwhile."""
    made = keep(tmp_path, address="0000")
    content = files.read_sealed(made.path / "result.json")
    for number in range(1, 2000):
        path = tmp_path / "probe" / f"{number:04}"
        path.mkdir()
        data = files.sealed_bytes({**content, "address": path.name})
        (path / "result.json").write_bytes(data)
    start = time.process_time()
    assert len(results(tmp_path)) == 2000
    assert time.process_time() - start < 1.0
