"""Generate `gen:arithmetic`: problems by operators, digits and format; parts don't overlap."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import field_validator, model_validator

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import build_spec
from cutaway.core.textset import TextSet
from cutaway.data.arithmetic import (
    NUMBER_FORMATS,
    OPERATORS,
    ArithmeticProblem,
    arithmetic_text_set,
)
from cutaway.data.generator_options import GeneratorOptions, make_rng

MAX_TRIES = 1000
MAX_DIGITS = 9


class ArithmeticOptions(GeneratorOptions):
    """Options of `gen:arithmetic`."""

    ops: str = "+-"
    """Operators, any of + - x /."""
    digits: str = "1-2"
    """Digits of the operands: one number, or a range such as 1-4."""
    weights: str = ""
    """Relative frequency of each number of digits, as in 1:4:1; uniform by default."""
    test_digits: str = ""
    """Digits of the test part if they differ from training (extrapolation)."""
    format: str = "plain"
    """plain, digit-spaced, or scratch (the answer shows its steps)."""

    @field_validator("digits", "test_digits", mode="before")
    @classmethod
    def _text(cls, value: Any) -> str:
        return str(value)

    @model_validator(mode="after")
    def _sensible(self) -> "ArithmeticOptions":
        for op in self.ops:
            lookup(OPERATORS, op, kind="operator")
        if not self.ops:
            raise BadSpec("gen:arithmetic: ops is empty. Give any of + - x /.")
        lookup(NUMBER_FORMATS, self.format, kind="number format")
        digit_probabilities(self.digits, self.weights)
        return self


def generate_arithmetic(source: str, values: Mapping[str, Any]) -> TextSet:
    """Generate the problems of `gen:arithmetic?...`; train, dev and test share no question."""
    options = build_spec(ArithmeticOptions, values)
    rng = make_rng(options.seed)
    taken: set[tuple[int, str, int]] = set()
    problems: list[ArithmeticProblem] = []
    sizes = options.parts()
    for part, size in sizes.items():
        extrapolates = part == "test" and options.test_digits
        table = digit_probabilities(
            options.test_digits if extrapolates else options.digits,
            "" if extrapolates else options.weights,
        )
        sample = _sample_problems(size, options.ops, table, taken, rng)
        taken |= {problem.key for problem in sample}
        problems += sample
    parts = np.repeat(np.array(list(sizes)), list(sizes.values()))
    return arithmetic_text_set(
        source, problems, parts=parts, spelling=options.format, meta={"seed": options.seed}
    )


def digit_probabilities(digits: str, weights: str) -> dict[int, float]:
    """The probability of each number of digits."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", digits)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= MAX_DIGITS:
        raise BadSpec(
            f"gen:arithmetic: digits is {digits!r}, expected a number or a range within "
            f"1-{MAX_DIGITS}, such as 2 or 1-4."
        )
    counts = range(low, high + 1)
    shares = [1.0] * len(counts) if not weights else _parse_weights(weights, len(counts))
    return {count: share / sum(shares) for count, share in zip(counts, shares, strict=True)}


def _parse_weights(weights: str, count: int) -> list[float]:
    try:
        shares = [float(value) for value in weights.split(":")]
    except ValueError:
        shares = []
    if len(shares) != count or not all(0 <= s < np.inf for s in shares) or sum(shares) == 0:
        raise BadSpec(
            f"gen:arithmetic: weights is {weights!r}, expected {count} numbers separated by ':', "
            "one for each number of digits."
        )
    return shares


def _sample_problems(
    size: int,
    ops: str,
    table: Mapping[int, float],
    taken: set[tuple[int, str, int]],
    rng: np.random.Generator,
) -> list[ArithmeticProblem]:
    """Distinct problems, operators in turn, none with the key of a problem in another part."""
    sample: dict[ArithmeticProblem, None] = {}
    for row in range(size):
        op = ops[row % len(ops)]
        for _ in range(MAX_TRIES):
            problem = _make_problem(op, _sample_operand(table, rng), _sample_operand(table, rng))
            if problem not in sample and problem.key not in taken:
                sample[problem] = None
                break
        else:
            raise BadSpec(
                f"gen:arithmetic: there are not enough different problems for {size} rows "
                f"(about {row} exist). Allow more digits, or request fewer rows."
            )
    problems = list(sample)
    return [problems[i] for i in rng.permutation(len(problems))]


def _sample_operand(table: Mapping[int, float], rng: np.random.Generator) -> int:
    count = int(rng.choice(list(table), p=list(table.values())))
    low = 0 if count == 1 else 10 ** (count - 1)
    return int(rng.integers(low, 10**count))


def _make_problem(op: str, x: int, y: int) -> ArithmeticProblem:
    """A problem from two numbers, with a non-negative integer result."""
    if op == "-":
        return ArithmeticProblem(max(x, y), op, min(x, y))
    if op == "/":
        divisor = max(y, 1)
        return ArithmeticProblem(x * divisor, op, divisor)
    return ArithmeticProblem(x, op, y)
