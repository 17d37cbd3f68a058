"""Tests of the index of runs: every answer is the one without it, whatever happened to the files.

Most tests have 300 runs; bench/big_folder.py measures 20,000.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.cli.main import run as cutaway
from cutaway.store import index_files, index_segments, run_index
from cutaway.store.query_tables import ROWS, RUNS
from cutaway.store.results import results
from tests.store.many_runs import rewrite, write_run, write_runs

QUERIES = (
    "select count(*), count(distinct address), count(distinct method) from runs",
    "select * from runs",
    "select address, summary->>'$.best.value' as best, seed, path from runs order by address",
    "select address from runs limit 5",
    "select * from rows",
    "select layers, count(*), avg(value) from rows where value < 1e6 group by layers",
    "select * from rows where value > 20",
    "select * from rows where metric = 'accuracy' and layers in ('1', '0')",
    "select * from rows where layers like '%e-05' or layers is null",
    "select r.model, max(value) from rows join runs r using (address) group by all",
    "select * from scores",
    "select method, metric, max(value), min(baseline) from scores group by all",
    "select * from rows, scores where rows.address = scores.address and rows.value = scores.value",
    "show tables",
    "show all tables",
    "select nothing from rows",
)
COMMANDS = (
    ["ls"],
    ["ls", "--method", "probe"],
    ["ls", "--json"],
    ["report", "--newest", "7", "--table", "csv"],
    ["report", "--newest", "3", "--method", "probe", "--table", "markdown"],
    ["query", "select count(*) from rows", "--strict"],
)


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    """Files written a moment ago count as settled, or nothing would be indexed here."""
    monkeypatch.setattr(run_index, "SETTLED_NS", 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    write_runs(folder, range(300))
    return folder


@pytest.fixture
def runs(written, tmp_path) -> Path:
    """A copy of three hundred runs, without an index."""
    return Path(shutil.copytree(written, tmp_path / "runs"))


def answers(folder: Path, capsys) -> dict[str, object]:
    """What every query and command says, on stdout and stderr."""
    found: dict[str, object] = {}
    for sql in QUERIES:
        try:
            frame = results(folder).query(sql)
            lines = sorted(repr([_digits(v) for v in row]) for row in frame.rows())
            found[sql] = (frame.schema, lines, sorted(capsys.readouterr().err.splitlines()))
        except Exception as error:
            found[sql] = (type(error), str(error))
    for words in COMMANDS:
        status = cutaway([*words, "--runs", str(folder)])
        said = capsys.readouterr()
        found[" ".join(words)] = (status, said.out, sorted(said.err.splitlines()))
    found["len"] = (len(results(folder)), [r.address for r in results(folder)])
    found["broken"] = results(folder).broken
    return found


def _digits(value: object) -> object:
    """Sums depend on the order of their terms in the last digit."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def without_index(folder: Path, capsys) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_files, "index_folder", lambda runs, **_: None)
        return answers(folder, capsys)


def index_of(folder: Path) -> list[Path]:
    return sorted(folder.glob(".index/*/*"))


def nothing(folder: Path) -> None:
    pass


def add_some(folder: Path) -> None:
    write_runs(folder, range(1000, 1005))


def add_many(folder: Path) -> None:
    write_runs(folder, range(2000, 2042))


def change_some(folder: Path) -> None:
    for place in sorted(folder.glob("probe/*"))[:4]:
        rewrite(
            place, summary={"metric": "accuracy", "best": {"value": 0.123}}, model={"name": "n"}
        )


def change_behind_the_clock(folder: Path) -> None:
    """Another text of the same length, and the old times."""
    path = sorted(folder.glob("graft/*/result.json"))[0]
    before = path.stat()
    rewrite(path.parent, command="cutaway probe --model gpt3 --data sst2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def delete_some(folder: Path) -> None:
    for place in sorted(folder.glob("*/*"))[::20]:
        shutil.rmtree(place)


def delete_many(folder: Path) -> None:
    for place in sorted(folder.glob("*/*"))[::2]:
        shutil.rmtree(place)


def delete_a_method(folder: Path) -> None:
    shutil.rmtree(folder / "shortcut")


def damage_tables(folder: Path) -> None:
    for place in sorted(folder.glob("inject/*"))[:3]:
        data = bytearray((place / "rows.parquet").read_bytes())
        data[len(data) // 2] ^= 1
        (place / "rows.parquet").write_bytes(data)
    (sorted(folder.glob("probe/*"))[0] / "rows.parquet").unlink()


def damage_results(folder: Path) -> None:
    (sorted(folder.glob("inject/*"))[5] / "result.json").write_text("{")
    (sorted(folder.glob("graft/*"))[5] / "result.json").unlink()


def rename_a_run(folder: Path) -> None:
    sorted(folder.glob("graft/*"))[7].rename(folder / "graft" / "renamed")


def repair(folder: Path) -> None:
    write_runs(folder, range(84))


def foreign_columns(folder: Path) -> None:
    place = sorted(folder.glob("probe/*"))[3]
    import polars as pl

    pl.DataFrame({"method": ["x"], "value": [[1, 2]]}).write_parquet(place / "rows.parquet")
    rewrite(place, files={})


CHANGES = (
    (nothing,), (add_some, change_some), (add_many,), (change_behind_the_clock, delete_some),
    (damage_tables, damage_results, rename_a_run), (delete_many,),
    (delete_a_method, foreign_columns), (repair,),
)  # fmt: skip


def test_every_answer_is_the_one_without_the_index(tmp_path, capsys, monkeypatch) -> None:
    runs = tmp_path / "runs"
    write_runs(runs, range(84))
    monkeypatch.setattr(run_index, "INDEX_FROM", 30)
    for changes in CHANGES:
        for change in changes:
            change(runs)
        expected = without_index(runs, capsys)
        found = answers(runs, capsys)
        for question, answer in expected.items():
            assert found[question] == answer, (changes, question)
    assert {path.name for path in index_of(runs)} >= {"rows.json", "runs.json", "scores.json"}


def read_runs(monkeypatch) -> list[Path]:
    """The runs whose result.json is read from now on."""
    seen: list[Path] = []

    def spy(folder):
        seen.append(folder)
        return read(folder)

    read = run_index.read_record
    monkeypatch.setattr(run_index, "read_record", spy)
    return seen


def test_only_runs_that_changed_are_read_again(runs, monkeypatch) -> None:
    results(runs).query("select count(*) from runs, rows, scores")
    seen = read_runs(monkeypatch)
    assert results(runs).query("select count(*) from runs")["count_star()"].to_list() == [300]
    assert len(results(runs)) == 300 and seen == []
    changed = sorted(runs.glob("probe/*"))[0]
    rewrite(changed, seconds=7.5)
    assert len(results(runs).query("from runs where seconds = 7.5")) == 1
    assert seen == [changed]
    results(runs).query("select count(*) from rows")
    assert seen == [changed] * 2


def test_runs_that_cannot_be_stored_do_not_make_the_index_be_written_again(
    tmp_path, monkeypatch
) -> None:
    for place in write_runs(tmp_path, range(240))[::2]:
        (place / "rows.parquet").write_bytes(b"junk")
    count = "select count(distinct address) from rows"
    expected = results(tmp_path).query(count).rows()
    before = {path: path.stat().st_mtime_ns for path in index_of(tmp_path)}
    assert results(tmp_path).query(count).rows() == expected
    assert {path: path.stat().st_mtime_ns for path in index_of(tmp_path)} == before


def test_few_runs_need_no_index(tmp_path) -> None:
    write_runs(tmp_path, range(run_index.INDEX_FROM - 1))
    assert results(tmp_path).query("select count(*) from rows").height == 1
    assert not (tmp_path / index_files.INDEX_FOLDER).exists()


def test_a_file_that_changed_a_moment_ago_is_read_again(runs, monkeypatch) -> None:
    monkeypatch.setattr(run_index, "SETTLED_NS", 3600 * 10**9)
    results(runs).query("select count(*) from runs")
    seen = read_runs(monkeypatch)
    assert len(results(runs)) == 300 and len(seen) >= 300


def test_lines_of_runs_that_are_gone_leave_the_index_with_them(runs) -> None:
    run_index.gather(runs, ROWS)
    delete_many(runs)
    found = run_index.gather(runs, ROWS)
    assert {key for segment in found.segments for key in segment.runs} <= found.stored.keys()
    named = json.loads(bytes(index_files.read_file(index_of_table(runs, "rows"))))["segments"]
    assert {p.name for p in index_of(runs) if p.name.startswith("rows")} == {*named, "rows.json"}


def index_of_table(folder: Path, table: str) -> Path:
    return next(path for path in index_of(folder) if path.name == f"{table}.json")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink, folder_instead])
def test_a_damaged_index_counts_as_none(runs, damage) -> None:
    expected = totals(runs)
    files = {re.sub(r"\..*-.*", "", path.name): path for path in index_of(runs)}
    assert files.keys() == {"rows", "rows.json", "runs", "runs.json", "scores", "scores.json"}
    for path in files.values():
        damage(path)
    assert totals(runs) == expected


def totals(folder: Path) -> list[tuple]:
    asked = (
        "select count(*), sum(seconds) from runs",
        "select count(*), sum(value) filter (value < 1e6) from rows",
        "select count(*), sum(value) filter (value < 1e6) from scores",
    )
    return [
        tuple(map(_digits, results(folder).query(sql).row(0)))
        for sql in asked
    ]  # fmt: skip


def lying(record):
    import polars as pl

    return pl.DataFrame({"layers": ["0"], "value": [666.0]})


def test_an_index_that_someone_else_made_is_not_believed(runs, monkeypatch, tmp_path) -> None:
    expected = totals(runs)
    shutil.rmtree(runs / index_files.INDEX_FOLDER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(tmp_path / "other"))
        run_index.gather(runs, run_index.RunTable("rows", ROWS.files, lying))
        assert results(runs).query("select max(value) from rows").row(0) == (666.0,)
        theirs = next((runs / index_files.INDEX_FOLDER).iterdir())
    assert totals(runs) == expected
    ours = index_files.index_folder(runs)
    shutil.rmtree(ours)
    theirs.rename(ours)
    assert totals(runs) == expected


def test_an_index_of_other_code_is_made_anew(runs, monkeypatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_files, "code_digest", lambda: "older")
        run_index.gather(runs, run_index.RunTable("rows", ROWS.files, lying))
    assert results(runs).query("select count(*) from rows where value = 666").row(0) == (0,)


def test_the_index_of_a_folder_that_cannot_be_written_is_at_home(runs, monkeypatch) -> None:
    expected = totals(runs)
    shutil.rmtree(runs / index_files.INDEX_FOLDER)
    # Root may write everywhere, so that the permission itself can't be tested here.
    monkeypatch.setattr(index_files.os, "access", lambda path, mode: False)
    assert totals(runs) == expected
    assert not (runs / index_files.INDEX_FOLDER).exists()
    seen = read_runs(monkeypatch)
    assert totals(runs) == expected and seen == []


@pytest.mark.parametrize("place", ["key", "index"])
def test_without_a_place_for_the_index_the_answers_are_the_same(
    runs, monkeypatch, tmp_path, place
) -> None:
    expected = totals(runs)
    shutil.rmtree(runs / index_files.INDEX_FOLDER)
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is needed")
    if place == "key":
        monkeypatch.setenv("CUTAWAY_HOME", str(blocked))
    else:
        shutil.copy(blocked, runs / index_files.INDEX_FOLDER)
    assert totals(runs) == expected


ASK = """
import sys
from pathlib import Path
from cutaway.store import run_index
from tests.store.test_run_index import totals
run_index.SETTLED_NS = 0
print(totals(Path(sys.argv[1])))
"""


def start(folder: Path, code: str = ASK) -> subprocess.Popen:
    words = [sys.executable, "-c", code, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_processes_that_write_the_index_at_once_do_not_disturb_each_other(runs) -> None:
    children = [start(runs) for _ in range(3)]
    said = {child.communicate(timeout=120)[0].strip() for child in children}
    assert said == {str(totals(runs))}
    assert all(child.returncode == 0 for child in children)
    assert not [path for path in index_of(runs) if ".tmp-" in path.name]
    assert len(run_index.gather(runs, RUNS).stored) == 300


KILLED = """
import os, signal, sys
from cutaway.store import files
count = 0
def dies(name):
    real = getattr(os, name)
    def wrapper(*args, **options):
        global count
        if ".index" in str(args[0]) or name == "write":
            count += 1
            if count == int(sys.argv[2]):
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    setattr(os, name, wrapper)
for name in ("open", "write", "fsync", "rename", "replace", "mkdir"):
    dies(name)
"""


def test_a_kill_at_any_write_leaves_a_good_index(runs) -> None:
    expected = totals(runs)
    killed = 0
    for number in (1, 2, 3, 4, 7, 12, 20, 31):
        shutil.rmtree(runs / index_files.INDEX_FOLDER, ignore_errors=True)
        words = [sys.executable, "-c", KILLED + ASK, str(runs), str(number)]
        child = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True)
        killed += child.returncode == -signal.SIGKILL
        assert totals(runs) == expected
    assert killed >= 6
    left = [path.name for path in index_of(runs) if re.search(r"\.tmp-", path.name)]
    assert left == []


def test_names_with_quotes_are_names_and_no_sql(tmp_path) -> None:
    place = write_run(tmp_path, 0)
    name = "a' as address, (select 1) as \"x"
    odd = tmp_path / 'it\'s "odd"' / name
    odd.parent.mkdir()
    place.rename(odd)
    rewrite(odd, method=odd.parent.name, address=name)
    for _ in range(2):
        found = results(tmp_path).query("select distinct method, address from rows")
        assert found.rows() == [(odd.parent.name, name)]
        write_runs(tmp_path, range(1, 160))
        shutil.rmtree(tmp_path / "probe")
        for other in ("shortcut", "graft", "inject", "fisher"):
            shutil.rmtree(tmp_path / other)


def test_a_large_index_is_written_in_several_segments(runs, monkeypatch) -> None:
    monkeypatch.setattr(index_segments, "SEGMENT_BYTES", 1000)
    expected = totals(runs)
    assert len(run_index.gather(runs, ROWS).segments) > 10
    assert totals(runs) == expected


def test_an_index_that_takes_long_is_saved_meanwhile(runs, monkeypatch) -> None:
    monkeypatch.setattr(index_segments, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(index_segments, "SMALL_BYTES", 0)
    stopped = iter(range(250))

    def lines(record):
        next(stopped)
        return ROWS.lines(record)

    with pytest.raises(StopIteration):
        run_index.gather(runs, run_index.RunTable("rows", ROWS.files, lines))
    assert len(index_segments.read_index(index_files.index_folder(runs), "rows").runs) > 200
