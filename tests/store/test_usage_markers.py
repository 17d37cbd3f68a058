"""Tests of use stamps."""

import os
import time

import pytest

from cutaway.store import process_suffix
from cutaway.store.usage_markers import (
    InUseMarker,
    in_use,
    last_used,
    mark_used,
    remove_dead_markers,
)


def test_a_folder_is_in_use_while_the_hold_lives(tmp_path):
    hold = InUseMarker(tmp_path)
    assert not in_use(tmp_path)
    hold.create()
    hold.create()
    assert in_use(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    del hold
    assert not in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_does_not_give_back_its_parents_hold(tmp_path):
    hold = InUseMarker(tmp_path)
    hold.create()
    child = os.fork()
    if child == 0:
        del hold
        os._exit(0)
    os.waitpid(child, 0)
    assert in_use(tmp_path)


def test_a_hold_of_a_dead_process_counts_for_nothing(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / f"in-use-{process_suffix.machine_id()}-{child}-{'0' * 32}").touch()
    assert not in_use(tmp_path)
    remove_dead_markers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_hold_is_not_weaker_for_a_jump_of_the_clock(tmp_path):
    hold = InUseMarker(tmp_path)
    hold.create()
    os.utime(hold.path, (0, 0))
    assert in_use(tmp_path)


def test_holding_what_is_not_there_creates_nothing(tmp_path):
    InUseMarker(tmp_path / "x").create()
    mark_used(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_use_is_remembered(tmp_path):
    mark_used(tmp_path)
    os.utime(tmp_path / "used", (50, 50))
    assert last_used(tmp_path) == 50
    mark_used(tmp_path)
    assert last_used(tmp_path) == pytest.approx(time.time(), abs=60)
