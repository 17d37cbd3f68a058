"""Arithmetic problems: carries, steps and formats."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.arithmetic import NUMBER_FORMATS, SCRATCH_STEPS, ArithmeticProblem

NUMBERS = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("a", "op", "b", "carries"),
    [
        (12, "+", 34, 0),
        (18, "+", 33, 1),
        (49, "+", 84, 2),
        (999, "+", 1, 3),
        (88, "-", 4, 0),
        (52, "-", 37, 1),
        (1000, "-", 1, 3),
        (21, "x", 4, 0),
        (26, "x", 4, 2),
        (104, "/", 4, 2),
    ],
)
def test_carries_are_counted_as_by_hand(a: int, op: str, b: int, carries: int) -> None:
    assert ArithmeticProblem(a, op, b).carries == carries


@given(NUMBERS, NUMBERS)
def test_a_sum_has_as_many_carries_as_its_digits_lose(a: int, b: int) -> None:
    digits = [sum(map(int, str(number))) for number in (a, b, a + b)]
    assert ArithmeticProblem(a, "+", b).carries == (digits[0] + digits[1] - digits[2]) // 9


@given(NUMBERS, NUMBERS)
def test_taking_away_borrows_as_often_as_putting_back_carries(a: int, b: int) -> None:
    more, less = max(a, b), min(a, b)
    assert (
        ArithmeticProblem(more, "-", less).carries
        == ArithmeticProblem(more - less, "+", less).carries
    )


@given(NUMBERS, st.sampled_from(sorted(SCRATCH_STEPS)), st.integers(1, 10**6))
def test_every_step_of_the_scratch_is_true(a: int, op: str, b: int) -> None:
    problem = {
        "-": ArithmeticProblem(max(a, b), "-", min(a, b)),
        "/": ArithmeticProblem(a * b, "/", b),
    }.get(op, ArithmeticProblem(a, op, b))
    for step in SCRATCH_STEPS[op](problem):
        left, right = step.split(" = ")
        assert _worth(left) == int(right), step


def _worth(text: str) -> int:
    """The value of `a + b - c` or `a - b x c`, products first."""
    total, sign = 0, 1
    for term in text.replace(" - ", " + -").split(" + "):
        factors = [int(f) for f in term.lstrip("-").split(" x ")]
        sign = -1 if term.startswith("-") else 1
        total += sign * int(np.prod(factors, dtype=object))
    return total


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("plain", ("49 + 84 =", "133")),
        ("digit-spaced", ("4 9 + 8 4 =", "1 3 3")),
        ("scratch", ("49 + 84 =", "9 + 4 + 0 = 13; 4 + 8 + 1 = 13; 133")),
    ],
)
def test_formats(spelling: str, expected: tuple[str, str]) -> None:
    assert NUMBER_FORMATS[spelling](ArithmeticProblem(49, "+", 84)) == expected
