"""Tests of names that carry their maker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.store import process_suffix
from cutaway.store.process_suffix import DAY, FOREVER, HOUR, is_abandoned, owner_token


def _dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def _file(folder: Path, name: str, age: float = 0.0) -> Path:
    path = folder / name
    path.touch()
    changed = path.stat().st_mtime - age
    os.utime(path, (changed, changed))
    return path


def test_two_tokens_differ():
    assert owner_token() != owner_token()


@pytest.mark.parametrize(
    ("age", "here", "gone"),
    [(0.0, HOUR, False), (2 * HOUR, HOUR, True), (2 * HOUR, DAY, False), (9e9, FOREVER, False)],
)
def test_a_living_process_keeps_its_file_as_long_as_it_is_given(tmp_path, age, here, gone):
    path = _file(tmp_path, f"x.tmp-{owner_token()}", age)
    assert is_abandoned(path, here=here, elsewhere=HOUR) is gone


def test_a_dead_process_keeps_nothing(tmp_path):
    path = _file(tmp_path, f"x.tmp-{process_suffix.machine_id()}-{_dead_process()}-{'0' * 32}")
    assert is_abandoned(path, here=FOREVER, elsewhere=FOREVER)


@pytest.mark.parametrize(("age", "gone"), [(0.0, False), (2 * HOUR, True)])
def test_another_machines_process_is_judged_by_its_silence(tmp_path, age, gone):
    path = _file(tmp_path, f"x.tmp-00000000-{_dead_process()}-{'0' * 32}", age)
    assert is_abandoned(path, here=FOREVER, elsewhere=HOUR) is gone


@pytest.mark.parametrize("name", ["result.json", "notes.tmp-mine", "a.tmp-1-2-3"])
def test_a_name_of_another_kind_is_never_abandoned(tmp_path, name):
    assert not is_abandoned(_file(tmp_path, name, 9e8), here=0.0, elsewhere=0.0)


def test_a_file_that_has_just_vanished_is_not_called_abandoned(tmp_path):
    assert not is_abandoned(tmp_path / f"x.tmp-{owner_token()}", here=HOUR, elsewhere=HOUR)
