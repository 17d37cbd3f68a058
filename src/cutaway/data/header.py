"""Tell from the rows of a text file whether its first line is a header or already data."""

import re
from collections.abc import Sequence
from statistics import median

from cutaway.data.columns import USUAL_NAMES
from cutaway.data.labels import number_or_none
from cutaway.data.table import Table

LONG_TEXT = 3
"""Columns whose values have at least this many words hold sentences, not names."""


def first_line_is_header(table: Table) -> bool:
    """Whether the column names are a header; always for files that can't lack one.

    The rules, in this order: a name above numbers is a header, and so are column numbers above
    text, and a line of usual names only. A cell that occurs again below it, or a number above
    numbers, is data. One usual name makes a header. A sentence above sentences is data. Everything
    else is a header.
    """
    if not table.first_line:
        return True
    if not len(table):
        # A file of one line: names hold no numbers, except for those that count the columns.
        return _are_column_numbers(list(table.columns)) or not any(map(_is_number, table.columns))
    columns = {name: [str(value) for value in values] for name, values in table.columns.items()}
    numeric = {name: all(map(_is_number, values)) for name, values in columns.items()}
    if any(numeric[name] and not _is_number(name) for name in columns):
        return True
    if _are_column_numbers(list(columns)) and not all(numeric.values()):
        return True
    usual = [name.strip().lower() in USUAL_NAMES for name in columns]
    if all(usual):
        return True
    if any(numeric.values()) or any(name in values for name, values in _stripped(columns).items()):
        return False
    return any(usual) or not any(_is_sentence_of(name, values) for name, values in columns.items())


def _is_number(text: str) -> bool:
    return number_or_none(text) is not None


def _are_column_numbers(names: Sequence[str]) -> bool:
    """Whether the names count the columns from 0 or 1, as data frames without names are saved."""
    return any(list(names) == [str(i + start) for i in range(len(names))] for start in (0, 1))


def _stripped(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name.strip(): [value.strip() for value in values] for name, values in columns.items()}


def _is_sentence_of(name: str, values: Sequence[str]) -> bool:
    """Whether a name has about as many words as the sentences below it."""
    words = median(_count_words(value) for value in values)
    return words >= LONG_TEXT and _count_words(name) > max(2, words / 4)


def _count_words(text: str) -> int:
    return len(re.findall(r"\w+", text))
