"""Tests of looking for runs without reading them."""

import os

from cutaway.store.run_places import RunPlace, newest_change, run_places
from tests.store.samples import keep


def test_partial_temporary_and_hidden_folders_are_no_runs(tmp_path) -> None:
    keep(tmp_path, address="a1")
    for name in ("probe/a2.partial", "probe/a3.tmp-00000000-1-" + "0" * 32, ".index/x", "probe/.x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "probe" / "file").touch()
    assert [place.key for place in run_places(tmp_path)] == ["probe/a1"]
    assert run_places(tmp_path / "none") == []


def test_a_stamp_shows_any_change_even_with_the_old_time(tmp_path) -> None:
    record = keep(tmp_path, address="a1")
    place = RunPlace(tmp_path, "probe", "a1")
    names = ("result.json", "rows.parquet")
    before = place.stamp(names)
    assert place.path == record.path and place.stamp(names) == before
    path = record.path / "rows.parquet"
    times = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(times, times))
    after = place.stamp(names)
    assert after != before and after[:4] == before[:4]
    assert newest_change(after) > newest_change(before)


def test_a_missing_file_has_no_stamp(tmp_path) -> None:
    keep(tmp_path, address="a1")
    assert RunPlace(tmp_path, "probe", "a1").stamp(("result.json", "samples.parquet")) is None
