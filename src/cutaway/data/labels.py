"""Infer the task from a column of labels, and encode the labels as numbers.

The rules, in this order: lists mean multilabel; numbers with a fraction mean regression; integers,
strings and booleans are classes if there are at most 50 different values. More values are an
error, and `as_task` states the task explicitly.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.lookup import suggestion
from cutaway.core.textset import Task, TextSet
from cutaway.data.table import Table, describe_rows, truncate

MAX_CLASSES = 50

LABEL_TASKS = ("classification", *get_args(Task))

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class EncodedLabels:
    """Labels as numbers, their task, and the class names."""

    values: NDArray[Any]
    task: Task
    classes: tuple[str, ...] = ()


def check_as_task(as_task: str | None) -> None:
    """Raise BadSpec unless the requested task is known."""
    if as_task is not None and as_task not in LABEL_TASKS:
        raise BadSpec(
            f"as_task (--as) is {as_task!r}. {suggestion(as_task, LABEL_TASKS)}"
            f"Known: {', '.join(LABEL_TASKS)}."
        )


def is_missing(value: Any) -> bool:
    """Whether a label is missing: None, NaN, an empty string or the string `nan`."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def number_or_none(value: Any) -> float | None:
    """The value as a float, or None if it is not a number."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def encode_label_column(
    table: Table, column: str, *, as_task: str | None = None, names: Sequence[str] = ()
) -> EncodedLabels:
    """The labels of a column as numbers, for `as_task` or by the rules above.

    `names` are the class names if the labels already are class indices.
    """
    values = table.column(column)
    _check_none_missing(table, column, values)
    if any(isinstance(value, list | tuple | set | dict) for value in values):
        if as_task not in (None, "multilabel"):
            raise BadData(
                f"{table.origin}: {column!r} holds lists, which mean 'multilabel', not {as_task!r}."
            )
        return _multilabel(table, column, values)
    if as_task == "multilabel":
        return _multilabel(table, column, [re.split(r"[,;|]", str(value)) for value in values])
    numbers = [number_or_none(value) for value in values]
    _check_finite(table, column, numbers)
    if as_task == "regression" or (as_task is None and _has_fraction(numbers)):
        return EncodedLabels(_floats(table, column, values, numbers), "regression")
    classes = _classes(values, numbers, names)
    if as_task is None and len(classes.classes) > MAX_CLASSES:
        raise BadData(_too_many_classes(table, column, values, len(classes.classes)))
    return _with_class_task(table, column, classes, as_task)


def cast_labels(textset: TextSet, as_task: str | None) -> TextSet:
    """The text set with its labels read as another task; 'text' removes them."""
    if as_task in (None, textset.task):
        return textset
    if as_task == "text":
        return replace(textset, labels=None, task="text", classes=())
    if textset.labels is None:
        raise BadData(f"{textset.name!r} has no labels to read as {as_task!r}.")
    table = Table(textset.name, {"label": np.asarray(textset.labels).tolist()})
    encoded = encode_label_column(table, "label", as_task=as_task, names=textset.classes)
    return replace(textset, labels=encoded.values, task=encoded.task, classes=encoded.classes)


def check_learnable(textset: TextSet) -> TextSet:
    """The same text set; BadData if it has no labels, NaN labels or a single class."""
    if textset.labels is None:
        raise BadData(
            f"{textset.name!r} has no labels, which are required here. "
            "Name their column with label_column (--label-column)."
        )
    labels = np.asarray(textset.labels)
    if len(labels) == 0:
        raise BadData(f"{textset.name!r} has no rows.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        bad = np.flatnonzero(~np.isfinite(labels.reshape(len(labels), -1)).all(axis=1))
        raise BadData(
            f"{textset.name!r} has {len(bad)} labels that are not numbers; the first is in row "
            f"{bad[0] + 1}. Fill them in or remove these rows."
        )
    if len(np.unique(labels, axis=0)) < 2:
        is_class = textset.task in ("binary", "multiclass") and textset.classes
        only = textset.classes[int(labels[0])] if is_class else labels[0].tolist()
        raise BadData(
            f"All {len(labels)} rows of {textset.name!r} have the label {only!r}. Give rows with "
            "at least two different labels."
        )
    return textset


def _check_none_missing(table: Table, column: str, values: Sequence[Any]) -> None:
    bad = [row for row, value in enumerate(values) if is_missing(value)]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} of {len(values)} labels in {column!r} are missing: "
            f"{describe_rows(table, bad)}. Fill them in, drop these rows with drop_empty "
            "(--drop-empty), or from Python read it as plain text with as_task='text'."
        )


def _check_finite(table: Table, column: str, numbers: Sequence[float | None]) -> None:
    bad = [row for row, value in enumerate(numbers) if value is not None and math.isinf(value)]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} labels in {column!r} are not finite numbers: "
            f"{describe_rows(table, bad)}. Labels must be finite."
        )


def _has_fraction(numbers: Sequence[float | None]) -> bool:
    known = [value for value in numbers if value is not None]
    return len(known) == len(numbers) and any(value != int(value) for value in known)


def _floats(
    table: Table, column: str, values: Sequence[Any], numbers: Sequence[float | None]
) -> NDArray[np.float64]:
    if all(isinstance(value, bool | np.bool_) for value in values):
        return np.asarray(values, dtype=np.float64)
    bad = [row for row, value in enumerate(numbers) if value is None]
    if bad:
        raise BadData(
            f"{table.origin}: {len(bad)} labels in {column!r} are not numbers: "
            f"{describe_rows(table, bad)}, for instance {truncate(values[bad[0]])!r}. Regression "
            "needs numbers; name another column with label_column (--label-column)."
        )
    return np.asarray(numbers, dtype=np.float64)


def _classes(
    values: Sequence[Any], numbers: Sequence[float | None], names: Sequence[str]
) -> EncodedLabels:
    """Class indices; numbers are sorted by value, strings by name."""
    if all(value is not None for value in numbers):
        # Half to even, as the probing reference rounds its regression targets.
        rounded = np.rint(np.asarray(numbers, dtype=np.float64))
        known, index = np.unique(rounded, return_inverse=True)
        if names and set(known.astype(int).tolist()) <= set(range(len(names))):
            return EncodedLabels(rounded.astype(np.int64), "multiclass", tuple(names))
        classes = tuple(str(int(v)) for v in known)
        return EncodedLabels(index.astype(np.int64), "multiclass", classes)
    texts = [str(value).strip() for value in values]
    classes = tuple(sorted(set(texts)))
    indices = {name: i for i, name in enumerate(classes)}
    return EncodedLabels(np.array([indices[t] for t in texts], np.int64), "multiclass", classes)


def _with_class_task(
    table: Table, column: str, labels: EncodedLabels, as_task: str | None
) -> EncodedLabels:
    """The labels with their task: binary for at most two classes."""
    count = len(labels.classes)
    if as_task == "binary" and count > 2:
        raise BadData(
            f"{table.origin}: {column!r} has {count} classes "
            f"({', '.join(labels.classes[:5])}, ...), and as_task='binary' allows 2."
        )
    task: Task = "multiclass" if count > 2 or as_task == "multiclass" else "binary"
    return EncodedLabels(labels.values, task, labels.classes)


def _too_many_classes(table: Table, column: str, values: Sequence[Any], count: int) -> str:
    """The message for too many classes; it names the rows with text among numbers."""
    texts = [row for row, value in enumerate(values) if number_or_none(value) is None]
    if 0 < len(texts) < len(values):
        return (
            f"{table.origin}: {column!r} mixes numbers and texts: {len(texts)} of {len(values)} "
            f"labels are not numbers, the first is {truncate(values[texts[0]])!r} "
            f"({describe_rows(table, texts)}). Fix or remove these rows, or name another column "
            "with label_column (--label-column)."
        )
    return (
        f"{table.origin}: {column!r} has {count} different values (the first is "
        f"{truncate(values[0])!r}), more than {MAX_CLASSES}. Set as_task='classification' or "
        "'regression' (--as), or name another column with label_column (--label-column)."
    )


def _multilabel(table: Table, column: str, values: Sequence[Any]) -> EncodedLabels:
    """0/1 by class, from lists of class names or from 0/1 rows of equal length."""
    rows = [_label_list(table, column, row, value) for row, value in enumerate(values)]
    widths = {len(row) for row in rows}
    if len(widths) == 1 and widths.pop() > 1 and all(v in (0, 1) for row in rows for v in row):
        marks = np.asarray(rows, dtype=np.int64)
        return EncodedLabels(marks, "multilabel", tuple(str(i) for i in range(marks.shape[1])))
    sets = [{str(value).strip() for value in row} - {""} for row in rows]
    known = set().union(*sets)
    numeric = all(_NUMBER.fullmatch(name) for name in known)
    classes = sorted(known, key=float) if numeric else sorted(known)
    marks = np.array([[int(name in row) for name in classes] for row in sets], dtype=np.int64)
    return EncodedLabels(marks.reshape(len(rows), len(classes)), "multilabel", tuple(classes))


def _label_list(table: Table, column: str, row: int, value: Any) -> list[Any]:
    plain = isinstance(value, list | tuple | set)
    if not plain or any(
        isinstance(item, list | tuple | set | dict) or is_missing(item) for item in value
    ):
        raise BadData(
            f"{table.locate(row)}: {column!r} holds {truncate(repr(value), 40)}, expected a flat "
            "list of class names or of 0 and 1, as in the other rows."
        )
    return sorted(value, key=str) if isinstance(value, set) else list(value)
