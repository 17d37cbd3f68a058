"""Snapshots: due by the clock, complete or absent, and a full disk doesn't stop the work."""

import pytest
import torch

from cutaway.console import Console
from cutaway.core.errors import NoRoom
from cutaway.store import snapshots as module
from cutaway.store.snapshots import (
    STATE_FILE,
    SaveClock,
    Snapshots,
    read_snapshot,
    saved_tensors,
    write_snapshot,
)

QUIET = Console(quiet=True)


@pytest.fixture
def clock(monkeypatch):
    """The time, set by the test."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_snapshot_is_due_half_a_minute_after_the_last(clock) -> None:
    save = SaveClock()
    clock[0] += 29.9
    assert not save.due() and save.due(at_end=True)
    clock[0] += 0.1
    assert save.due()
    save.saved(clock[0])
    assert not save.due() and not save.due(at_end=True)


def test_slow_writing_takes_at_most_a_fifth_of_the_time(clock) -> None:
    save = SaveClock()
    began = clock[0]
    clock[0] += 20
    save.saved(began)
    clock[0] += 79
    assert not save.due()
    clock[0] += 1
    assert save.due()


def test_zero_seconds_save_at_every_chance(monkeypatch) -> None:
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    assert SaveClock().due()


def test_the_newest_snapshot_is_read_and_the_one_before_removed(tmp_path) -> None:
    for step in (1, 2):
        write_snapshot(tmp_path, step, {"a/w": torch.full((2,), float(step))}, {"step": step})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    saved = read_snapshot(tmp_path, QUIET)
    assert saved.meta["step"] == 2
    assert torch.equal(saved_tensors(saved, "a")["w"], torch.tensor([2.0, 2.0]))
    assert saved_tensors(saved, "b") == {}


def test_a_second_snapshot_of_a_step_never_removes_the_first_before_it_is_there(
    tmp_path, monkeypatch
) -> None:
    write_snapshot(tmp_path, 7, {"w": torch.zeros(1)}, {"evaluated": False})

    class Killed(BaseException):
        """The process ends here."""

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(module.files, "remove_folder", kill)
    with pytest.raises(Killed):
        write_snapshot(tmp_path, 7, {"w": torch.ones(1)}, {"evaluated": True})
    assert read_snapshot(tmp_path, QUIET).meta == {"evaluated": True}
    monkeypatch.undo()
    for step in (7, 8):
        write_snapshot(tmp_path, step, {"w": torch.ones(1)}, {"step": step})
        assert read_snapshot(tmp_path, QUIET).meta == {"step": step}
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000008"]


def test_work_is_saved_before_something_long_that_cannot_be(clock) -> None:
    save = SaveClock()
    clock[0] += 10
    assert not save.due(ahead=19.9) and save.due(ahead=20.0)


def test_a_damaged_snapshot_is_skipped(tmp_path) -> None:
    write_snapshot(tmp_path, 1, {"w": torch.ones(2)}, {})
    file = tmp_path / "step-00000001" / STATE_FILE
    file.write_bytes(file.read_bytes()[:-4])
    assert read_snapshot(tmp_path, QUIET) is None


def test_without_a_folder_nothing_is_saved() -> None:
    nowhere = Snapshots(None, QUIET)
    assert not nowhere.due() and nowhere.load() is None
    nowhere.save(1, {"w": torch.ones(1)})
    nowhere.discard()


def test_discarded_snapshots_are_gone(tmp_path) -> None:
    kept = Snapshots(tmp_path / "loop", QUIET)
    kept.save(3, {"w": torch.ones(1)})
    assert kept.load() is not None
    kept.discard()
    assert not (tmp_path / "loop").exists()


def test_on_a_full_disk_the_work_goes_on_without_snapshots(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    kept = Snapshots(tmp_path, QUIET)
    assert kept.due()

    def full(*_: object) -> None:
        raise NoRoom("no space")

    monkeypatch.setattr(module, "save_artefact", full)
    kept.save(1, {"w": torch.ones(1)})
    assert not kept.due()
