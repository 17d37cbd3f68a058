"""The laws that hold on every engine."""

import os
import time

import pytest

from cutaway.core.errors import BadSpec, UnknownName
from cutaway.engine import ENGINES, PieceFailed, find_engine, run_pieces
from tests.engine import work


def test_every_piece_comes_back_once_with_its_result(engine):
    found = list(run_pieces(engine, work.square, range(40)))
    assert sorted(found) == [(n, n * n) for n in range(40)]


def test_no_pieces_give_nothing(engine):
    assert list(run_pieces(engine, work.square, [])) == []


def test_a_failing_piece_is_named_with_its_reason_and_the_rest_go_on(engine):
    done = dict(run_pieces(engine, work.sixth, [1, 0, 3], key=lambda n: f"sixth of {n}"))
    assert (done[1], done[3]) == (6, 2)
    failure = done[0]
    assert isinstance(failure, PieceFailed)
    assert (failure.key, failure.tries) == ("sixth of 0", 3)
    assert str(failure).startswith("ZeroDivisionError: ")


def test_a_piece_is_tried_three_times_and_every_retry_is_said(engine, tmp_path):
    said: list[str] = []
    counted = work.FailsTwice(str(tmp_path))
    assert dict(run_pieces(engine, counted, [2, 5], notify=said.append)) == {2: 4, 5: 25}
    assert (counted.starts(2), counted.starts(5), len(said)) == (3, 3, 4)
    assert all("the disk is away" in one for one in said)


def test_an_error_raised_on_purpose_is_not_tried_again_and_keeps_its_exit_status(engine):
    ((_, failure),) = run_pieces(engine, work.refuse, [7])
    assert (str(failure), failure.tries, failure.exit_status) == ("Row 7 can't be used.", 1, 2)


def test_leaving_the_loop_ends_what_is_under_way(elsewhere, tmp_path):
    counted = work.Slow(str(tmp_path))
    for _ in run_pieces(elsewhere, counted, range(200)):
        break
    time.sleep(1.0)
    started = len(list(tmp_path.iterdir()))
    time.sleep(1.0)
    assert started == len(list(tmp_path.iterdir())) < 20


def test_pieces_run_in_other_processes_which_are_used_again(elsewhere):
    found = {pid for _, pid in run_pieces(elsewhere, work.process, range(12))}
    assert os.getpid() not in found
    assert len(found) <= 4


def test_a_killed_worker_costs_one_try_and_nothing_is_lost_or_counted_twice(elsewhere, tmp_path):
    counted = work.DiesOnce(str(tmp_path))
    found = list(run_pieces(elsewhere, counted, range(8)))
    assert sorted(found) == [(n, n * n) for n in range(8)]
    assert counted.starts(3) == 2


def test_a_piece_that_kills_its_worker_three_times_is_named(elsewhere, tmp_path):
    counted = work.AlwaysDies(str(tmp_path))
    done = dict(run_pieces(elsewhere, counted, range(6), key=lambda n: f"piece {n}"))
    assert {n: got for n, got in done.items() if n != 3} == {n: n * n for n in (0, 1, 2, 4, 5)}
    assert isinstance(done[3], PieceFailed)
    assert (done[3].key, done[3].tries, counted.starts(3)) == ("piece 3", 3, 3)
    assert "worker" in str(done[3])


@pytest.mark.parametrize(
    ("text", "kind", "where"),
    [
        ("local", "local", None),
        ("local:4", "local", "4"),
        ("ray", "ray", None),
        ("ray://head:10001", "ray", "ray://head:10001"),
        ("10.0.0.7:6379", "ray", "10.0.0.7:6379"),
        ("auto", "ray", "auto"),
    ],
)
def test_an_engine_is_known_by_its_text(text, kind, where):
    engine = find_engine(text)
    assert (type(engine), engine.target) == (ENGINES[kind], where)
    assert engine.in_process == (text == "local")


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match=r"Did you mean 'local'\? Known: local, ray"):
        run_pieces("locl", abs, [1])


@pytest.mark.parametrize(
    "text", ["local:", "local:0", "local:two", "local:-1", "local:²", "local:" + "9" * 5000]
)
def test_a_pool_needs_a_number(text):
    with pytest.raises(BadSpec, match="number of processes >= 1"):
        find_engine(text)


@pytest.mark.parametrize("text", ["ray://h:99999", "ray://h:x", "ray://[h", "h:99999"])
def test_an_address_that_no_machine_can_have_is_refused(text):
    with pytest.raises(BadSpec, match=r"is not a valid address .* port within 0-65535"):
        find_engine(text)
