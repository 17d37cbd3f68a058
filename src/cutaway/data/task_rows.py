"""Read the rows of a table as a task defines them: its columns, filters and labels."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.build_text_set import make_text_set
from cutaway.data.columns import ColumnChoice
from cutaway.data.delimited import without_header
from cutaway.data.header import first_line_is_header
from cutaway.data.labels import is_missing, number_or_none
from cutaway.data.table import Table, describe_rows, truncate
from cutaway.data.tasks import TaskFile

_MARKED_WORD = re.compile(r"<[^<>]*/>")

PartLabels = NDArray[np.str_] | None
NamedColumns = Mapping[str, str | None]
"""Columns that the user names: text_column, pair_column, label_column."""


def apply_task(
    task: TaskFile,
    table: Table,
    parts: PartLabels,
    *,
    named: NamedColumns | None = None,
    as_task: str | None = None,
    drop_empty: bool = False,
) -> TextSet:
    """The text set of a table for this task; the notes say which rows were left out.

    `named` are the columns that the user names, as `text_column`, in place of the task's.
    """
    columns = find_task_columns(task, table, named)
    if columns is None:
        raise _lacking_columns(task, table, named or {})
    table, parts = _filter_rows(task, table, parts, columns)
    table = _replace_marked_words(task, table, columns)
    if columns.label is not None and as_task != "text" and task.kind in LABEL_READERS:
        table = _read_labels(task, table, columns.label)
    default = "classification" if task.classes else None
    as_task = as_task or ("regression" if task.kind == "regression" else default)
    drop_empty = drop_empty or task.drop_empty
    text_set = make_text_set(
        table, columns, name=task.name, as_task=as_task, parts=parts, drop_empty=drop_empty
    )
    return replace(text_set, meta={**text_set.meta, "task": task.name})


def with_header(task: TaskFile, table: Table) -> Table:
    """The table, with the task's column names if its first line is not a header."""
    names = task.columns.headerless
    lacks = find_task_columns(task, table) is None and len(names) == len(table.columns)
    return without_header(table, names) if lacks and not first_line_is_header(table) else table


def find_task_columns(
    task: TaskFile, table: Table, named: NamedColumns | None = None
) -> ColumnChoice | None:
    """The named columns, else the task's by their names here; None if a required one is missing."""
    wanted = _wanted_columns(task)
    given = {role: (named or {}).get(f"{role}_column") for role in wanted}
    found = {role: given[role] or _first_present(names, table) for role, names in wanted.items()}
    if any(found[role] is None for role, names in wanted.items() if names or role == "text"):
        return None
    text = str(found["text"])
    names = (text,) if text in table.columns else tuple(map(str.strip, text.split("+")))
    for name in filter(None, (*(names if given["text"] else ()), given["pair"], given["label"])):
        table.column(name)
    return ColumnChoice(names, found["pair"], found["label"], guessed=False)


def _wanted_columns(task: TaskFile) -> dict[str, Sequence[str]]:
    """The names of the task's columns, by role; empty for a role that the task doesn't have."""
    columns = task.columns
    return {"text": columns.text, "pair": columns.pair, "label": columns.label}


def _lacking_columns(task: TaskFile, table: Table, named: NamedColumns) -> BadData:
    """The error for a table without a column of the task."""
    if not first_line_is_header(table):
        return headerless_error(table)
    lacking = [
        role for role, names in _wanted_columns(task).items()
        if names and not named.get(f"{role}_column") and _first_present(names, table) is None
    ]  # fmt: skip
    flags = " and ".join(f"{role}_column (--{role}-column)" for role in lacking)
    return BadData(
        f"{table.origin} has no {' and no '.join(lacking)} column of the task {task.name!r}: it "
        f"needs {required_columns(task)}. {table.list_columns()} Name it with {flags}."
    )


def headerless_error(table: Table) -> BadData:
    """The error for a file whose first line is data."""
    cells = ", ".join(repr(truncate(name, 30)) for name in list(table.columns)[:4])
    return BadData(
        f"The first line of {table.origin} ({cells}) is like the rows below it, so the columns "
        "have no names. Add a header line, such as: text,label"
    )


def _first_present(names: Sequence[str], table: Table) -> str | None:
    known = table.columns
    return next((n for n in names if n in known or all(p in known for p in n.split("+"))), None)


def required_columns(task: TaskFile) -> str:
    """The columns that a task needs, as text: `'sentence' or 'text'; 'label'`."""
    wanted = _wanted_columns(task).values()
    return "; ".join(" or ".join(map(repr, names)) for names in wanted if names)


def _filter_rows(
    task: TaskFile, table: Table, parts: PartLabels, columns: ColumnChoice
) -> tuple[Table, PartLabels]:
    """Apply the task's `where`, `keep` and `drop`."""
    rule = task.labels
    tests: list[tuple[str, Callable[[str], bool], str]] = [
        (column, _canonical_value(value).__eq__, f"{column} other than {value!r}")
        for column, value in task.where.items()
    ]
    if columns.label is not None and rule.keep:
        tests.append((columns.label, rule.keep.__contains__, "another label"))
    if columns.label is not None and rule.drop:
        tests.append((columns.label, lambda raw: raw not in rule.drop, "no usable label"))
    for column, passes, reason in tests:
        names = table.class_names.get(column)
        values = [_canonical_value(value, names) for value in table.column(column)]
        rows = [i for i, value in enumerate(values) if passes(value)]
        if len(rows) < len(values):
            if not rows:
                raise BadData(f"{table.origin}: all {len(values)} rows have {reason}.")
            table = table.select(rows, f"{len(values) - len(rows)} rows left out: {reason}")
            parts = None if parts is None else parts[rows]
    return table, parts


def _canonical_value(value: Any, names: Sequence[str] | None = None) -> str:
    """A value as written in task files: integers without a point, lower-case true and false."""
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    as_number = number_or_none(value)
    if as_number is not None and as_number.is_integer():
        return str(int(as_number))
    text = str(value).strip()
    return text.lower() if text in ("True", "False") else text


def _replace_marked_words(task: TaskFile, table: Table, columns: ColumnChoice) -> Table:
    """Replace the marked word of each text by the word in the task's `replace_marked` column."""
    if task.replace_marked is None:
        return table
    words, name = table.column(task.replace_marked), columns.text[0]
    texts = [
        _MARKED_WORD.sub(lambda _, w=word: str(w), text) if isinstance(text, str) else text  # type: ignore[misc]
        for text, word in zip(table.column(name), words, strict=True)
    ]
    return replace(table, columns={**table.columns, name: texts})


def _read_labels(task: TaskFile, table: Table, column: str) -> Table:
    """Convert the label column to class indices, or to scaled numbers for regression."""
    names, values = table.class_names.get(column), table.column(column)
    known, read = _label_spellings(task), LABEL_READERS[task.kind]
    labels = [None if is_missing(v) else read(task, v, names, known) for v in values]
    bad = [i for i, label in enumerate(labels) if label is None and not is_missing(values[i])]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} labels in {column!r} are unknown to the task "
            f"{task.name!r}: {truncate(values[bad[0]])!r} in {describe_rows(table, bad)}. "
            f"{suggestion(str(values[bad[0]]), known)}Known: {', '.join(known) or 'numbers'}."
        )
    _check_bounds(task, table, column, labels)
    class_names = {**table.class_names, column: tuple(task.classes)}
    columns = {**table.columns, column: labels}
    return replace(table, columns=columns, class_names=class_names)


def _check_bounds(
    task: TaskFile, table: Table, column: str, labels: Sequence[float | None]
) -> None:
    """Raise BadData for numbers outside the task's bounds: usually they are already scaled."""
    if task.labels.bounds is None:
        return
    low, high = task.labels.bounds
    bad = [i for i, v in enumerate(labels) if v is not None and not low - 1e-6 <= v <= high + 1e-6]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} labels in {column!r} are outside {low:g} to {high:g} "
            f"after the scaling of {task.name!r}: {table.columns[column][bad[0]]!r} becomes "
            f"{labels[bad[0]]:g} ({describe_rows(table, bad)}). If they are already scaled, load "
            "the file itself instead of the task."
        )


def class_indices(task: TaskFile, names: Sequence[str]) -> list[int | None]:
    """The class index of each name, in any spelling the task allows."""
    known = _label_spellings(task)
    return [_class_index(task, name, None, known) for name in names]


def _label_spellings(task: TaskFile) -> dict[str, int]:
    """Every spelling of a label in lower case, with its class index."""
    ordered = task.labels.order or task.classes
    by_name = {name: i for i, name in enumerate(ordered)}
    plain = {} if task.labels.names or task.labels.order else {str(i): i for i in by_name.values()}
    named = {raw: by_name[name] for raw, name in task.labels.names.items()}
    return {name.lower(): i for name, i in {**plain, **by_name, **named}.items()}


def _class_index(
    task: TaskFile, value: Any, names: Sequence[str] | None, known: dict[str, int]
) -> int | None:
    return known.get(_canonical_value(value, names).lower())


def _scaled_number(
    task: TaskFile, value: Any, names: Sequence[str] | None, known: dict[str, int]
) -> float | None:
    ordinal = bool(task.labels.order)
    raw = _class_index(task, value, names, known) if ordinal else number_or_none(value)
    return None if raw is None else task.labels.scale(float(raw))


LABEL_READERS: dict[
    str, Callable[[TaskFile, Any, Sequence[str] | None, dict[str, int]], int | float | None]
] = {"binary": _class_index, "multiclass": _class_index, "regression": _scaled_number}
