"""Arithmetic problems `A op B = C`: results, carries and text formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.lookup import lookup
from cutaway.core.textset import TextSet


@dataclass(frozen=True)
class ArithmeticProblem:
    """Two integers and an operator; division is exact."""

    a: int
    op: str
    b: int

    @property
    def result(self) -> int:
        """The correct answer."""
        return OPERATORS[self.op](self.a, self.b)

    @property
    def digits(self) -> int:
        """Number of digits of the longer operand."""
        return max(len(str(abs(self.a))), len(str(abs(self.b))))

    @property
    def carries(self) -> int:
        """Number of carries (or borrows) in the pencil-and-paper calculation."""
        return CARRIES[self.op](abs(self.a), abs(self.b))

    @property
    def key(self) -> tuple[int, str, int]:
        """The same for problems that differ only in operand order, such as 3 + 5 and 5 + 3."""
        if self.op in "+x":
            return (min(self.a, self.b), self.op, max(self.a, self.b))
        return (self.a, self.op, self.b)


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "x": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}


def _digit_columns(a: int, b: int) -> list[tuple[int, int]]:
    """Pairs of digits of both numbers, the last digits first."""
    width = max(len(str(a)), len(str(b)))
    pairs = zip(reversed(str(a).zfill(width)), reversed(str(b).zfill(width)), strict=True)
    return [(int(x), int(y)) for x, y in pairs]


def _sum_carries(a: int, b: int) -> int:
    carry = count = 0
    for x, y in _digit_columns(a, b):
        carry = int(x + y + carry > 9)
        count += carry
    return count


def _borrows(a: int, b: int) -> int:
    borrow = count = 0
    for x, y in _digit_columns(max(a, b), min(a, b)):
        borrow = int(x - y - borrow < 0)
        count += borrow
    return count


def _product_carries(a: int, b: int) -> int:
    count = 0
    for y in map(int, str(b)):
        carry = 0
        for x in map(int, reversed(str(a))):
            carry = (x * y + carry) // 10
            count += carry > 0
    return count


CARRIES: dict[str, Callable[[int, int], int]] = {
    "+": _sum_carries,
    "-": _borrows,
    "x": _product_carries,
    # The carries of multiplying the quotient by the divisor.
    "/": lambda a, b: _product_carries(a // b, b),
}


def _sum_steps(problem: ArithmeticProblem) -> list[str]:
    carry, steps = 0, []
    for x, y in _digit_columns(problem.a, problem.b):
        total = x + y + carry
        steps.append(f"{x} + {y} + {carry} = {total}")
        carry = total // 10
    return steps


def _difference_steps(problem: ArithmeticProblem) -> list[str]:
    borrow, steps = 0, []
    for x, y in _digit_columns(problem.a, problem.b):
        rest = (x - y - borrow) % 10
        top, borrow = (x + 10, 1) if x - y - borrow < 0 else (x, 0)
        steps.append(f"{top} - {y} - {top - y - rest} = {rest}")
    return steps


def _product_steps(problem: ArithmeticProblem) -> list[str]:
    by_digit = enumerate(reversed(str(problem.b)))
    return [f"{problem.a} x {int(d) * 10**i} = {problem.a * int(d) * 10**i}" for i, d in by_digit]


def _quotient_steps(problem: ArithmeticProblem) -> list[str]:
    rest, steps = 0, []
    for digit in str(problem.a):
        rest = rest * 10 + int(digit)
        times = rest // problem.b
        if times:
            left = rest - times * problem.b
            steps.append(f"{rest} - {times} x {problem.b} = {left}")
            rest = left
    return steps


SCRATCH_STEPS: dict[str, Callable[[ArithmeticProblem], list[str]]] = {
    "+": _sum_steps,
    "-": _difference_steps,
    "x": _product_steps,
    "/": _quotient_steps,
}


def _plain(problem: ArithmeticProblem) -> tuple[str, str]:
    return f"{problem.a} {problem.op} {problem.b} =", str(problem.result)


def _spaced(problem: ArithmeticProblem) -> tuple[str, str]:
    question = f"{' '.join(str(problem.a))} {problem.op} {' '.join(str(problem.b))} ="
    return question, " ".join(str(problem.result))


def _scratch(problem: ArithmeticProblem) -> tuple[str, str]:
    steps = SCRATCH_STEPS[problem.op](problem)
    return _plain(problem)[0], "; ".join([*steps, str(problem.result)])


NUMBER_FORMATS: dict[str, Callable[[ArithmeticProblem], tuple[str, str]]] = {
    "plain": _plain,
    "digit-spaced": _spaced,
    "scratch": _scratch,
}


GROUPS = {name: name for name in ("digits", "op", "carries")}
"""The facts by which scores are reported too."""


def arithmetic_text_set(
    name: str,
    problems: Sequence[ArithmeticProblem],
    *,
    parts: NDArray[np.str_] | None = None,
    spelling: str = "plain",
    notes: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
) -> TextSet:
    """Questions `A op B =` as texts, results as labels, and the other facts by row in `meta`."""
    spell = lookup(NUMBER_FORMATS, spelling, kind="number format")
    spelled = [spell(problem) for problem in problems]
    by_row = {
        "a": np.array([p.a for p in problems]),
        "op": np.array([p.op for p in problems]),
        "b": np.array([p.b for p in problems]),
        "result": np.array([p.result for p in problems]),
        "carries": np.array([p.carries for p in problems]),
        "digits": np.array([p.digits for p in problems]),
        "key": np.array([" ".join(map(str, p.key)) for p in problems]),
    }
    return TextSet(
        name=name,
        texts=tuple(question for question, _ in spelled),
        labels=by_row["result"].astype(np.float64),
        task="regression",
        parts=parts,
        answers=tuple(answer for _, answer in spelled),
        notes=notes,
        meta={"source": name, "format": spelling, **(meta or {}), **by_row, "groups": GROUPS},
    )
