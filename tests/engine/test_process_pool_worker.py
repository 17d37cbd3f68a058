"""The loop of a worker process, driven through a pipe in a thread."""

import os
from importlib import import_module
from multiprocessing import Pipe
from threading import Thread

import pytest

from cutaway.engine.process_pool_worker import FUNCTION, PIECE, READY, THREAD_VARIABLES, worker_main
from tests.engine.work import refuse, square


@pytest.fixture
def pipe(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    ours, theirs = Pipe()
    thread = Thread(target=worker_main, args=(theirs, 1))
    thread.start()
    assert ours.recv() == READY
    yield ours
    ours.close()
    thread.join(10)
    assert not thread.is_alive(), "the end of the pipe ends the worker"


def send(pipe, *messages):
    for message in messages:
        pipe.send(message)
    return pipe.recv()


def test_pieces_are_answered_with_the_last_function(pipe) -> None:
    assert send(pipe, FUNCTION, {}, square, PIECE, 3).value == 9
    assert send(pipe, PIECE, 4).value == 16
    assert send(pipe, FUNCTION, {}, abs, PIECE, -4).value == 4


def test_the_environment_comes_with_the_function(pipe, monkeypatch) -> None:
    monkeypatch.delenv("CUTAWAY_TEST_WORKER", raising=False)
    send(pipe, FUNCTION, {"CUTAWAY_TEST_WORKER": "yes"}, square, PIECE, 1)
    assert os.environ.pop("CUTAWAY_TEST_WORKER") == "yes"


def test_an_error_is_an_outcome_and_the_worker_goes_on(pipe) -> None:
    outcome = send(pipe, FUNCTION, {}, refuse, PIECE, 7)
    assert (outcome.reason, outcome.final, outcome.exit_status) == ("Row 7 can't be used.", True, 2)
    assert send(pipe, FUNCTION, {}, square, PIECE, 2).value == 4


def test_a_piece_without_a_function_fails_with_the_reason(pipe) -> None:
    assert send(pipe, PIECE, 1).reason == "no work was sent"


def test_a_function_that_cannot_be_loaded_fails_each_of_its_pieces(pipe) -> None:
    class Gone:
        def __reduce__(self):
            return import_module, ("no_such_module",)

    outcome = send(pipe, FUNCTION, {}, Gone(), PIECE, 1)
    assert "the worker can't load the work" in outcome.reason
    assert "no_such_module" in outcome.reason
