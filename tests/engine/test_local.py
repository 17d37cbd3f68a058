import pytest

from cutaway.core.errors import UnknownName
from cutaway.engine import run_pieces


def test_a_failing_piece_gives_its_exception_and_the_rest_go_on():
    done = dict(run_pieces("local", lambda n: 6 // n, [1, 0, 3]))
    assert done[1] == 6
    assert isinstance(done[0], ZeroDivisionError)
    assert done[3] == 2


def test_running_out_of_memory_ends_the_run():
    def greedy(_):
        raise MemoryError

    with pytest.raises(MemoryError):
        list(run_pieces("local", greedy, [1]))


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="Known: local"):
        list(run_pieces("locl", abs, [1]))
