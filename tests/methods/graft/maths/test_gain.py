"""The relative gain, and the smallest size that keeps enough of it."""

from cutaway.methods.graft.maths.gain import find_smallest_size, relative_gain


def test_the_smallest_size_that_keeps_enough_is_found() -> None:
    asked = []
    found = find_smallest_size(100_000, lambda n: asked.append(n) or min(1.0, n / 2000), 0.95)
    assert found.reached
    assert 1900 <= found.size <= 1.06 * 1900
    assert len(asked) == len(set(asked)) < 25
    assert find_smallest_size(10, lambda n: 1.0, 0.9).size == 1
    never = find_smallest_size(50, lambda n: 0.2, 0.9)
    assert (never.size, never.reached) == (50, False)


def test_relative_gain_is_0_at_the_base_and_1_at_the_tuned_model() -> None:
    assert relative_gain(0.5, 0.5, 0.9) == 0.0
    assert relative_gain(0.9, 0.5, 0.9) == 1.0
    assert relative_gain(0.6, 0.5, 0.5) != relative_gain(0.6, 0.5, 0.5)
