import pytest

from cutaway.engine import run_pieces


def test_running_out_of_memory_ends_the_run():
    def greedy(_):
        raise MemoryError

    with pytest.raises(MemoryError):
        list(run_pieces("local", greedy, [1]))


def test_pieces_are_taken_one_at_a_time():
    seen = []
    for piece, _ in run_pieces("local", abs, iter(range(5))):
        seen.append(piece)
        if piece == 2:
            break
    assert seen == [0, 1, 2]
