"""A task's meaning applied to rows: the columns, the filters, the labels."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.columns import ColumnChoice
from cutaway.data.delimited import without_header
from cutaway.data.labels import is_missing, number_or_none
from cutaway.data.table import Table, describe_rows, truncate
from cutaway.data.tasks import TaskFile
from cutaway.data.text_set import make_text_set

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
    """The rows of a table as this task reads them; what was left out is told in the notes."""
    columns = find_task_columns(task, table)
    if columns is None:
        raise BadData(
            f"{table.origin} lacks columns of the task {task.name!r}: it needs "
            f"{required_columns(task)}. {table.listing()}"
        )
    table, parts = _filter_rows(task, table, parts, columns)
    table = _replace_marked_words(task, table, columns)
    if columns.label is not None and as_task != "text" and task.kind in LABEL_READERS:
        table = _read_labels(task, table, columns.label)
    kind = as_task or ("regression" if task.kind == "regression" else None)
    made = make_text_set(
        table,
        columns,
        name=task.name,
        as_task=kind or ("classification" if task.classes else None),
        parts=parts,
        drop_empty=drop_empty or task.drop_empty,
    )
    return replace(made, meta={**made.meta, "task": task.name})


def with_header(task: TaskFile, table: Table) -> Table:
    """The table, with the task's column names where its first line turns out to be no header."""
    names = task.columns.headerless
    lacks = find_task_columns(task, table) is None and len(names) == len(table.columns)
    return without_header(table, names) if lacks else table


def find_task_columns(task: TaskFile, table: Table) -> ColumnChoice | None:
    """The task's columns by the names this table has; None where one that is needed lacks."""
    text = _first_present(task.columns.text, table)
    pair = _first_present(task.columns.pair, table)
    label = _first_present(task.columns.label, table)
    if (
        text is None
        or (pair is None and task.columns.pair)
        or (label is None and task.columns.label)
    ):
        return None
    names = (text,) if text in table.columns else tuple(text.split("+"))
    return ColumnChoice(names, pair, label, guessed=False)


def _first_present(names: Sequence[str], table: Table) -> str | None:
    have = table.columns
    return next((n for n in names if n in have or all(p in have for p in n.split("+"))), None)


def required_columns(task: TaskFile) -> str:
    """`'sentence' or 'text'; 'label'`: the columns that a task's rows must have."""
    wanted = (task.columns.text, task.columns.pair, task.columns.label)
    return "; ".join(" or ".join(map(repr, names)) for names in wanted if names)


def _filter_rows(
    task: TaskFile, table: Table, parts: PartLabels, columns: ColumnChoice
) -> tuple[Table, PartLabels]:
    """The rows that the task's `where`, `keep` and `drop` leave."""
    tests: list[tuple[str, Callable[[str], bool], str]] = [
        (
            column,
            lambda said, v=value: said == _canonical_value(v),  # type: ignore[misc]
            f"{column} other than {value!r}",
        )
        for column, value in task.where.items()
    ]
    rule = task.labels
    if columns.label is not None and rule.keep:
        tests.append((columns.label, lambda said: said in rule.keep, "another label"))
    if columns.label is not None and rule.drop:
        tests.append((columns.label, lambda said: said not in rule.drop, "no usable label"))
    for column, passes, why in tests:
        values = table.column(column)
        rows = [
            i
            for i, value in enumerate(values)
            if passes(_canonical_value(value, table.names.get(column)))
        ]
        if len(rows) < len(values):
            if not rows:
                raise BadData(f"{table.origin}: all {len(values)} rows have {why}; none is left.")
            table = table.keep(rows, f"{len(values) - len(rows)} rows left out: {why}")
            parts = None if parts is None else parts[rows]
    return table, parts


def _canonical_value(value: Any, names: Sequence[str] | None = None) -> str:
    """A value as task files spell it: whole numbers without a point, true and false small."""
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    as_number = number_or_none(value)
    if as_number is not None and as_number.is_integer():
        return str(int(as_number))
    said = str(value).strip()
    return said.lower() if said in ("True", "False") else said


def _replace_marked_words(task: TaskFile, table: Table, columns: ColumnChoice) -> Table:
    """The table with the marked words of its texts replaced, where the task says so."""
    if task.replace_marked is None:
        return table
    words, name = table.column(task.replace_marked), columns.text[0]
    texts = [
        _MARKED_WORD.sub(lambda _, w=word: str(w), text) if isinstance(text, str) else text  # type: ignore[misc]
        for text, word in zip(table.column(name), words, strict=True)
    ]
    return replace(table, columns={**table.columns, name: texts})


def _read_labels(task: TaskFile, table: Table, column: str) -> Table:
    """The table with the label column as the task means it: class numbers or scaled numbers."""
    names, values = table.names.get(column), table.column(column)
    known, meaning = _label_spellings(task), LABEL_READERS[task.kind]
    found = [None if is_missing(v) else meaning(task, v, names, known) for v in values]
    odd = [i for i, label in enumerate(found) if label is None and not is_missing(values[i])]
    if odd:
        raise BadData(
            f"{table.origin}: {len(odd)} labels in {column!r} are unknown to the task "
            f"{task.name!r}: {truncate(values[odd[0]])!r} in {describe_rows(table, odd)}. "
            f"{suggestion(str(values[odd[0]]), known)}Known: {', '.join(known) or 'numbers'}."
        )
    _check_bounds(task, table, column, found)
    legend = {**table.names, column: tuple(task.classes)}
    return replace(table, columns={**table.columns, column: found}, names=legend)


def _check_bounds(task: TaskFile, table: Table, column: str, found: Sequence[float | None]) -> None:
    """BadData for numbers outside the task's bounds: most often they are scaled already."""
    if task.labels.bounds is None:
        return
    low, high = task.labels.bounds
    out = [i for i, v in enumerate(found) if v is not None and not low - 1e-6 <= v <= high + 1e-6]
    if out:
        raise BadData(
            f"{table.origin}: {len(out)} labels in {column!r} lie outside {low:g} to {high:g} "
            f"after the scaling of {task.name!r}: {table.columns[column][out[0]]!r} becomes "
            f"{found[out[0]]:g} ({describe_rows(table, out)}). Are they scaled already? Then read the "
            "file itself instead of the task."
        )


def class_indices(task: TaskFile, names: Sequence[str]) -> list[int | None]:
    """The number of the task's class that each name means, spelled as its files may spell it."""
    known = _label_spellings(task)
    return [_class_index(task, name, None, known) for name in names]


def _label_spellings(task: TaskFile) -> dict[str, int]:
    """Every spelling of a label in small letters, with its number."""
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
    plain = (
        known.get(_canonical_value(value, names).lower())
        if task.labels.order
        else number_or_none(value)
    )
    return None if plain is None else task.labels.scale(float(plain))


LABEL_READERS: dict[
    str, Callable[[TaskFile, Any, Sequence[str] | None, dict[str, int]], int | float | None]
] = {"binary": _class_index, "multiclass": _class_index, "regression": _scaled_number}
