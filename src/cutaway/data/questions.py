"""Read questions and answers from a table: by column names, or by a template over its columns."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.build_text_set import parts_from_column
from cutaway.data.columns import part_column
from cutaway.data.table import Table, describe_rows, truncate

QUESTION_NAMES = (
    "prompt", "context", "question", "instruction", "input", "problem", "query", "source", "q",
)  # fmt: skip
ANSWER_NAMES = (
    "answer", "completion", "response", "output", "target", "solution", "result", "a",
)  # fmt: skip
MAX_GROUPS = 12
"""Columns with at most this many different values group the questions."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d{1,18})(\.\d{1,18})?", re.ASCII)


@dataclass(frozen=True)
class QuestionOptions:
    """The columns that the user names, and the template; None means the usual names."""

    prompt_column: str | None = None
    answer_column: str | None = None
    template: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The options that were given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def read_questions(
    table: Table, name: str, parts: NDArray[np.str_] | None, options: QuestionOptions
) -> TextSet:
    """The questions of a table as texts, with their answers.

    Where every answer is a number, `meta["result"]` has the numbers. `meta["groups"]` names the
    columns with few values, by which scores are reported too.
    """
    if len(table) == 0:
        raise BadData(f"{table.origin} has no rows: it needs at least one.")
    answer = options.answer_column or _guess(table, ANSWER_NAMES, "answer")
    answers = tuple(text.strip() for text in _strings(table, answer, "answers", "--answer-column"))
    if options.template is not None:
        columns, questions = _fill(table, options, answer)
    else:
        column = options.prompt_column or _guess(table, QUESTION_NAMES, "question")
        columns = (column,)
        questions = _strings(table, column, "questions", "--prompt-column")
    part_notes: tuple[str, ...] = ()
    if parts is None:
        parts, part_notes = parts_from_column(table)
    used = f"question from {' + '.join(map(repr, columns))}, answer from {answer!r}"
    numbers = [parse_decimal(text) for text in answers]
    numeric = all(number is not None for number in numbers)
    result = {"format": "number", "result": np.array(numbers, dtype=object)} if numeric else {}
    return TextSet(
        name,
        # The space before an answer belongs to the answer.
        tuple(text.rstrip(" \t") for text in questions),
        answers=answers,
        parts=parts,
        notes=(*table.notes, *part_notes, used),
        meta={"source": table.origin, **result, **_groups(table, {answer, part_column(table)})},
    )


def parse_decimal(text: str) -> int | Decimal | None:
    """The number that a text is, exactly; None if it isn't one. Commas may separate thousands."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number = Decimal(match[0].replace(",", ""))
    return int(number) if number == number.to_integral_value() else number


def has_questions(table: Table) -> bool:
    """Whether a table has one question and one answer column by their usual names."""
    return all(len(_found(table, names)) == 1 for names in (QUESTION_NAMES, ANSWER_NAMES))


def _found(table: Table, names: Sequence[str]) -> list[str]:
    folded = {name.strip().lower(): name for name in table.columns}
    return [folded[name] for name in names if name in folded]


def _guess(table: Table, names: Sequence[str], role: str) -> str:
    """The column of this role by its usual names; BadData unless there is exactly one."""
    found = _found(table, names)
    flag = {"question": "--prompt-column", "answer": "--answer-column"}[role]
    also = ", or write the question with --template" if role == "question" else ""
    if len(found) > 1:
        raise BadData(
            f"{table.origin}: {found[0]!r} or {found[1]!r} could be the {role}. Choose one with "
            f"{flag}{also}. {table.list_columns()}"
        )
    if not found:
        raise BadData(
            f"{table.origin} has no {role} column by a usual name ({', '.join(names[:5])}, ...). "
            f"Name it with {flag}{also}. {table.list_columns()}"
        )
    return found[0]


def _strings(table: Table, column: str, what: str, flag: str) -> list[str]:
    """A column as strings; BadData names the rows that are empty or hold lists."""
    strings = _field_strings(table, column, flag)
    empty = [i for i, text in enumerate(strings) if not text.strip()]
    if empty:
        raise BadData(
            f"{table.origin}: {len(empty)} of {len(strings)} {what} in {column!r} are empty: "
            f"{describe_rows(table, empty)}. Fill them in, remove these rows, or name another "
            f"column with {flag}."
        )
    return strings


def _field_strings(table: Table, column: str, flag: str) -> list[str]:
    """A column as strings, empty where a value is missing."""
    values = table.column(column)
    bad = [i for i, value in enumerate(values) if isinstance(value, list | tuple | dict | set)]
    if bad:
        raise BadData(
            f"{table.origin}: {column!r} holds {truncate(repr(values[bad[0]]), 40)}, expected one "
            f"text or number: {describe_rows(table, bad)}. Name another column with {flag}."
        )
    names = table.class_names.get(column)
    return [_string(value, names) for value in values]


def _string(value: Any, names: Sequence[str] | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _fill(table: Table, options: QuestionOptions, answer: str) -> tuple[tuple[str, ...], list[str]]:
    """The columns in the template, and the template filled with each row."""
    given = str(options.template)
    if options.prompt_column is not None:
        raise BadSpec(
            f"--prompt-column {options.prompt_column!r} and --template {given!r} both say what "
            "the question is. Give one of them; a template names its columns in braces."
        )
    # A shell passes \n on as two characters.
    template = given.replace("\\n", "\n").replace("\\t", "\t")
    fields = tuple(dict.fromkeys(_FIELD.findall(template)))
    if not fields:
        raise BadSpec(
            f"--template {given!r} has no field, so every question would be the same. Name a "
            f"column in braces, as in 'Q: {{question}}\\nA:'. {table.list_columns()}"
        )
    for field in fields:
        if field not in table.columns:
            raise BadData(
                f"--template {given!r} has the field {{{field}}}, and {table.origin} has no such "
                f"column. {suggestion(field, table.columns)}{table.list_columns()}"
            )
    if answer in fields:
        raise BadSpec(
            f"--template {given!r} holds the answer column {answer!r}: it would give the answer "
            "away. Leave it out, or name another column with --answer-column."
        )
    values = {field: _field_strings(table, field, "--template") for field in fields}
    rows = zip(*values.values(), strict=True)
    filled = [dict(zip(fields, row, strict=True)) for row in rows]
    return fields, [_FIELD.sub(lambda m, row=row: row[m[1]], template) for row in filled]  # type: ignore[misc]


def _groups(table: Table, left_out: set[str | None]) -> dict[str, Any]:
    """The columns with few values, as `meta`: {"groups": {name: key}} and the values by key."""
    groups, values = {}, {}
    for name, column in table.columns.items():
        plain = name not in left_out and all(isinstance(v, str | int | bool) for v in column)
        if plain and 2 <= len(set(column)) <= min(MAX_GROUPS, len(column) // 2):
            groups[name] = f"group {name}"
            values[groups[name]] = np.array([str(value) for value in column])
    return {"groups": groups, **values}
