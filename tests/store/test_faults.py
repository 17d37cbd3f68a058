"""Kill -9, full and read-only disks, many processes at once: nothing is lost, nothing is half."""

import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cutaway.core.errors import Missing, NoRoom, RequestError
from cutaway.store import cache, files
from cutaway.store.activations import open_activations
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.progress import Progress
from cutaway.store.results import find_record, results
from tests.store import kills
from tests.store.samples import ADDRESS, keep, rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """The folder in which children lived and died, and how they ended."""
    folder = tmp_path_factory.mktemp("deaths")
    command = [sys.executable, "-m", "tests.store.kills", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)
    return folder, json.loads(done.stdout)


def _no_rubbish(folder: Path) -> None:
    left = [path for path in folder.rglob("*") if files.is_temporary(path)]
    assert left == []


def _check_table(folder: Path) -> int:
    """How many rows are there, all of them right."""
    table = kills.table_of(folder)
    there = table.covered(["a", "b"]).nonzero()[0]
    if len(there):
        assert torch.equal(table.read("a", there), kills.VALUES[there])
        assert torch.equal(table.read("b", there), -kills.VALUES[there])
    assert cache.verify(folder=folder / "tables") == []
    return len(there)


def _after_fill(folder: Path) -> None:
    _check_table(folder)
    kills.fill(folder)
    assert _check_table(folder) == kills.ROWS


def _after_save(folder: Path) -> None:
    runs = results(folder / "runs")
    assert runs.broken == []
    assert all(record.rows.equals(rows()) for record in runs)
    kills.save(folder)
    record = find_record(folder / "runs", "probe", ADDRESS)
    assert record is not None
    assert record.file("note.txt").read_bytes() == b"text"
    assert [path.name for path in (folder / "runs" / "probe").iterdir()] == [ADDRESS]


def _after_artefact(folder: Path) -> None:
    try:
        artefact = load_artefact(folder / "x.safetensors")
        assert torch.all(artefact.tensor("w") == artefact.meta["version"] - 1)
    except Missing:
        pass
    kills.artefact(folder)
    assert load_artefact(folder / "x.safetensors").meta == {"version": 2}


def _after_pieces(folder: Path) -> None:
    kept = Progress(folder / "pieces")
    assert kept.done() == {f"cell {number}" for number in range(len(kept.done()))}
    assert kept.rows() == [{"value": number / 3} for number in range(len(kept.done()))]
    kills.pieces(folder)
    assert len(kept.done()) == 4
    kept.discard()
    assert not (folder / "pieces").exists()


def _after_prune(folder: Path) -> None:
    _check_table(folder)
    kills.prune(folder)
    assert cache.list_entries(folder / "tables") == []


AFTER = {
    "fill": _after_fill,
    "save": _after_save,
    "artefact": _after_artefact,
    "pieces": _after_pieces,
    "prune": _after_prune,
}


@pytest.mark.parametrize("job", kills.JOBS)
def test_killed_at_any_write_point_the_store_is_readable_and_goes_on(deaths, job):
    folder, ends = deaths
    assert set(ends[f"points {job}"][:-1]) == {"killed"}
    assert ends[f"points {job}"][-1] == "0"
    assert len(ends[f"points {job}"]) > 10
    _check(job, folder / "points" / job)


@pytest.mark.parametrize("job", kills.JOBS)
def test_killed_fifty_times_at_random_moments_nothing_is_lost_or_doubled(deaths, job):
    folder, ends = deaths
    assert "killed" in ends[f"times {job}"]
    _check(job, folder / "times" / job)


@pytest.mark.parametrize("job", kills.JOBS)
def test_processes_at_once_do_not_disturb_each_other(deaths, job):
    folder, ends = deaths
    assert set(ends[f"together {job}"]) == {"0"}
    _check(job, folder / "together" / job)


def _check(job: str, folder: Path) -> None:
    for place in sorted(folder.iterdir()):
        AFTER[job](place)
        _no_rubbish(place)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own of one megabyte; where that isn't allowed, the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk can't be mounted here: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


BIG = 2 << 20

WRITERS = {
    "file": lambda folder: files.write_atomic(folder / "x", bytes(BIG)),
    "table": lambda folder: _fill_big(folder),
    "artefact": lambda folder: save_artefact(
        folder / "x.safetensors", {"w": torch.zeros(BIG // 4)}, {}
    ),
    "run": lambda folder: keep(folder, files={"big": bytes(BIG)}),
    "pieces": lambda folder: Progress(folder / "p").put("a", [{"x": "y" * BIG}]),
}


def _fill_big(folder: Path) -> None:
    with open_activations({"model": "big"}, 4, folder / "tables").writer() as writer:
        writer.append(range(4), {"x": torch.zeros(4, BIG // 16)})


def _believe_in_room(monkeypatch) -> None:
    """The look at the disk beforehand is shut off, so that the write itself has to fail."""
    monkeypatch.setattr(files, "check_free_space", lambda *_: None)


def _nothing_big(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 4096
    _no_rubbish(folder)


@pytest.mark.parametrize("look", [True, False], ids=["asked first", "found out"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_said_so_and_holds_nothing_half(small_disk, monkeypatch, write, look):
    if not look:
        _believe_in_room(monkeypatch)
    with pytest.raises(NoRoom, match=str(small_disk)):
        write(small_disk)
    _nothing_big(small_disk)
    assert list(results(small_disk)) == []


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_larger_than_allowed_is_said_so_and_not_left_half(tmp_path, write):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(NoRoom, match=str(tmp_path)):
            write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    _nothing_big(tmp_path)


@pytest.fixture
def read_only(small_disk):
    """A disk with a table, an artefact and a run on it, which can no longer be written."""
    kills.fill(small_disk)
    save_artefact(small_disk / "x.safetensors", {"w": torch.ones(2)}, {})
    keep(small_disk / "runs")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    return small_disk


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_read_only_disk_is_said_so(read_only, monkeypatch, write):
    _believe_in_room(monkeypatch)
    with pytest.raises(RequestError, match="read-only") as caught:
        write(read_only)
    assert str(read_only) in str(caught.value)


def test_everything_on_a_read_only_disk_can_be_read(read_only):
    assert _check_table(read_only) == kills.ROWS
    assert load_artefact(read_only / "x.safetensors").tensor("w").sum() == 2
    runs = results(read_only / "runs")
    assert len(runs.query("select * from rows")) == 4
    assert len(cache.list_entries(read_only / "tables")) == 1
    assert keep(read_only / "runs") == next(iter(runs))


@pytest.fixture
def forbidden(tmp_path):
    """A folder this process may not write; root, whom permissions don't bind, becomes nobody."""
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_folder_without_permission_is_said_so(forbidden, write):
    with pytest.raises(RequestError, match="permission") as caught:
        write(forbidden)
    assert str(forbidden) in str(caught.value)


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: list(results(folder / "runs")),
        lambda folder: load_artefact(folder / "x.safetensors"),
        lambda folder: files.check_free_space(folder / "x", 1),
    ],
    ids=["runs", "artefact", "room"],
)
def test_what_may_not_be_read_is_said_so(forbidden, read):
    if os.geteuid() != 65534:
        pytest.skip("only root can make a folder that this process can't even look at")
    with pytest.raises(RequestError, match="permission"):
        read(forbidden)


@pytest.mark.parametrize("job", ["fill", "save", "artefact", "pieces"])
def test_a_clock_that_jumps_back_and_forth_changes_nothing(job, tmp_path, monkeypatch):
    """From 1970 to 2100 and back at every look at it; the store is tidied in between."""
    jumps = itertools.cycle([0.0, 4e9, 1e9])
    monkeypatch.setattr("time.time", lambda: next(jumps))
    kills.JOBS[job](tmp_path)
    cache.list_entries(tmp_path / "tables")
    AFTER[job](tmp_path)
    _no_rubbish(tmp_path)
