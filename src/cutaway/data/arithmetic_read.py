"""Read arithmetic problems from tables: lines `A op B = C`, or columns a, op, b, result."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import PARTS, TextSet
from cutaway.data.arithmetic import ArithmeticProblem, arithmetic_text_set
from cutaway.data.build_text_set import parts_from_column
from cutaway.data.table import Table, describe_rows

ARITHMETIC_COLUMNS = ("a", "op", "b", "result")
OPERATOR_ALIASES = {"*": "x", "×": "x", "·": "x", "÷": "/", "−": "-", ":": "/"}
MAX_OPERAND = 10**18

_LINE = re.compile(r"\s*(-?\d+)\s*([-+x*×·/÷−:])\s*(-?\d+)\s*=\s*(-?\d+)\s*", re.ASCII)


def is_arithmetic(table: Table) -> bool:
    """Whether a table has the four columns, or only lines of the form `A op B = C`."""
    if set(ARITHMETIC_COLUMNS) <= set(table.columns):
        return True
    lines = table.columns.get("text", [])
    return len(table.columns) == 1 and bool(lines) and all(map(_LINE.fullmatch, map(str, lines)))


def read_arithmetic(table: Table, name: str, parts: NDArray[np.str_] | None) -> TextSet:
    """The problems of a table; BadData for wrong results, a note for questions in two parts."""
    rows = _problem_fields(table)
    parts = parts_from_column(table)[0] if parts is None else parts
    problems = [ArithmeticProblem(a, op, b) for a, op, b, _ in rows]
    bad = [i for i, p in enumerate(problems) if p.op == "/" and (p.b == 0 or p.a % p.b)]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} divisions by zero or with a remainder: "
            f"{describe_rows(table, bad)}. Only exact divisions are supported: remove these rows."
        )
    wrong = [i for i, (p, row) in enumerate(zip(problems, rows, strict=True)) if p.result != row[3]]
    if wrong:
        first = problems[wrong[0]]
        raise BadData(
            f"{table.origin}: {len(wrong)} results are wrong: {describe_rows(table, wrong)}; "
            f"{first.a} {first.op} {first.b} is {first.result}. Fix or remove these rows."
        )
    notes = (*table.notes, *_leakage_notes(problems, parts))
    return arithmetic_text_set(
        name, problems, parts=parts, notes=notes, meta={"source": table.origin}
    )


def _problem_fields(table: Table) -> list[tuple[int, str, int, int]]:
    if set(ARITHMETIC_COLUMNS) <= set(table.columns):
        rows = zip(*(table.columns[name] for name in ARITHMETIC_COLUMNS), strict=True)
        lines = [f"{a} {op} {b} = {result}" for a, op, b, result in rows]
    else:
        lines = [str(line) for line in table.columns["text"]]
    return [_parse_problem(table, row, line) for row, line in enumerate(lines)]


def _parse_problem(table: Table, row: int, line: str) -> tuple[int, str, int, int]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadData(
            f"{table.locate(row)}: {line[:60]!r} is not a problem. Expected integers and one "
            "of + - x /, as in 12 + 34 = 46."
        )
    a, sign, b, result = match.groups()
    # The length is checked first because int() refuses thousands of digits.
    if any(len(text) > 20 or abs(int(text)) >= MAX_OPERAND for text in (a, b, result)):
        raise BadData(f"{table.locate(row)}: numbers of 10^18 and more can't be used.")
    return int(a), OPERATOR_ALIASES.get(sign, sign), int(b), int(result)


def _leakage_notes(
    problems: Sequence[ArithmeticProblem], parts: NDArray[np.str_] | None
) -> list[str]:
    """A note for each pair of parts with common questions."""
    if parts is None:
        return []
    by_part = {p: {q for q, part in zip(problems, parts, strict=True) if part == p} for p in PARTS}
    pairs = [*pairwise(PARTS), (PARTS[0], PARTS[-1])]
    counts = [(one, two, len(by_part[one] & by_part[two])) for one, two in pairs]
    return [f"{count} questions of {two} are also in {one}" for one, two, count in counts if count]
