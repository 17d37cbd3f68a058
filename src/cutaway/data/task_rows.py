"""Read the rows of a table as a task defines them: its columns, filters and labels."""

import re
from collections.abc import Callable, Sequence
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
from cutaway.data.labels import is_missing, number_or_none
from cutaway.data.table import Table, describe_rows, truncate
from cutaway.data.tasks import TaskFile

_MARKED_WORD = re.compile(r"<[^<>]*/>")

PartLabels = NDArray[np.str_] | None


def apply_task(
    task: TaskFile,
    table: Table,
    parts: PartLabels,
    *,
    as_task: str | None = None,
    drop_empty: bool = False,
) -> TextSet:
    """The text set of a table for this task; the notes say which rows were left out."""
    columns = find_task_columns(task, table)
    if columns is None:
        raise BadData(
            f"{table.origin} lacks columns of the task {task.name!r}: it needs "
            f"{required_columns(task)}. {table.list_columns()}"
        )
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
    return without_header(table, names) if lacks else table


def find_task_columns(task: TaskFile, table: Table) -> ColumnChoice | None:
    """The task's columns by their names in this table; None if a required one is missing."""
    wanted = (task.columns.text, task.columns.pair, task.columns.label)
    text, pair, label = (_first_present(names, table) for names in wanted)
    if text is None or (pair is None and wanted[1]) or (label is None and wanted[2]):
        return None
    names = (text,) if text in table.columns else tuple(text.split("+"))
    return ColumnChoice(names, pair, label, guessed=False)


def _first_present(names: Sequence[str], table: Table) -> str | None:
    known = table.columns
    return next((n for n in names if n in known or all(p in known for p in n.split("+"))), None)


def required_columns(task: TaskFile) -> str:
    """The columns that a task needs, as text: `'sentence' or 'text'; 'label'`."""
    wanted = (task.columns.text, task.columns.pair, task.columns.label)
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
