"""Build a TextSet from a table whose text and label columns are known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.messages import conversation_text
from cutaway.core.textset import PARTS, TextSet
from cutaway.data.columns import ColumnChoice, part_column
from cutaway.data.generator_options import make_rng
from cutaway.data.labels import encode_label_column, is_missing, number_or_none
from cutaway.data.part_names import PART_BY_SPELLING
from cutaway.data.table import Table, describe_rows, truncate
from cutaway.measure.strata import strata

MAX_CHARACTERS = 2**24
"""The longest text that is read."""


def make_text_set(
    table: Table,
    chosen: ColumnChoice,
    *,
    name: str,
    as_task: str | None = None,
    parts: NDArray[np.str_] | None = None,
    drop_empty: bool = False,
) -> TextSet:
    """The text set of a table; empty texts and missing labels raise BadData unless dropped."""
    if len(table) == 0:
        raise BadData(f"{table.origin} has no rows: it needs at least one.")
    if parts is None:
        parts, part_notes = parts_from_column(table)
        table = replace(table, notes=table.notes + part_notes)
    if drop_empty:
        table, parts = _drop_empty_rows(table, chosen, parts)
    labels = None
    if chosen.label is not None and as_task != "text":
        names = table.class_names.get(chosen.label) or _class_names_beside(table, chosen.label)
        labels = encode_label_column(table, chosen.label, as_task=as_task, names=names)
    facts = {"facts": table.metadata} if table.metadata else {}
    return TextSet(
        name=name,
        texts=_joined_texts(table, chosen.text),
        labels=labels.values if labels else None,
        task=labels.task if labels else "text",
        classes=labels.classes if labels else (),
        pairs=_text_column(table, chosen.pair) if chosen.pair else None,
        parts=parts,
        messages=_conversations(table, chosen.text),
        notes=(*table.notes, *((chosen.describe(),) if chosen.guessed else ())),
        meta={"source": table.origin, "columns": chosen.describe(), **facts},
    )


def subsample_rows(textset: TextSet, limit: int | None, seed: int, least: int = 0) -> TextSet:
    """At most `limit` random rows in their original order, in proportion to parts and classes.

    Every class keeps `least` rows, of the train part if there are parts, and one row of each other
    part, as far as it has them; BadSpec if `limit` is too small for that.
    """
    if limit is None or limit >= len(textset):
        return textset
    if limit < 1:
        raise BadSpec(f"limit must be at least 1, got {limit}.")
    rng, rows = make_rng(seed), np.arange(len(textset))
    parts = [rows] if textset.parts is None else [rows[textset.parts == p] for p in PARTS]
    kinds = np.zeros(len(rows), dtype=np.int64)
    if textset.task in ("binary", "multiclass", "multilabel"):
        kinds = strata(np.asarray(textset.labels), textset.task)
    groups = [part[kinds[part] == kind] for part in parts for kind in np.unique(kinds)]
    least_of_part = [least] + [min(least, 1)] * (len(parts) - 1)
    wanted = [count for count in least_of_part for _ in np.unique(kinds)]
    minima = [min(len(g), count) for g, count in zip(groups, wanted, strict=True)]
    if sum(minima) > limit:
        raise BadSpec(_limit_too_small(textset, kinds, limit, least, sum(minima)))
    counts = _proportional_counts([len(group) for group in groups], limit, minima)
    picked = [rng.choice(g, size=k, replace=False) for g, k in zip(groups, counts, strict=True)]
    return textset.take(np.sort(np.concatenate(picked)))


def _limit_too_small(
    textset: TextSet, kinds: NDArray[np.int64], limit: int, least: int, needed: int
) -> str:
    numbers, sizes = np.unique(kinds, return_counts=True)
    number, size = int(numbers[sizes.argmin()]), int(sizes.min())
    name = textset.classes[number] if number < len(textset.classes) else "no label"
    return (
        f"--limit {limit} is too small: {least} rows of each of the {len(numbers)} classes of "
        f"{textset.name!r} are needed (the smallest, {name!r}, has {size}). Use --limit {needed} "
        "or more."
    )


def _proportional_counts(
    sizes: Sequence[int], limit: int, minima: Sequence[int] | None = None
) -> list[int]:
    """Divide `limit` in proportion to the sizes, by the largest-remainder method.

    A group whose share is below its minimum gets the minimum; the others divide the rest.
    """
    least = minima or [0] * len(sizes)
    low: set[int] = set()
    while True:
        rest = limit - sum(least[i] for i in low)
        free = [i for i in range(len(sizes)) if i not in low]
        total = sum(sizes[i] for i in free)
        more = {i for i in free if sizes[i] * rest < least[i] * total}
        if not more:
            break
        low |= more
    shares = iter(_largest_remainders([sizes[i] for i in free], rest))
    return [least[i] if i in low else next(shares) for i in range(len(sizes))]


def _largest_remainders(sizes: Sequence[int], limit: int) -> list[int]:
    total = max(1, sum(sizes))
    exact = [size * limit / total for size in sizes]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: limit - sum(counts)]:
        counts[i] += 1
    return counts


def _text_column(table: Table, column: str) -> tuple[str, ...]:
    """A column of texts; BadData for empty texts, numbers and lone surrogates."""
    values = table.column(column)
    bad = [row for row, value in enumerate(values) if value is not None and not _is_text(value)]
    if bad:
        raise BadData(
            f"{table.origin}: {column!r} holds {truncate(repr(values[bad[0]]), 40)} where text is "
            f"expected: {describe_rows(table, bad)}. Name another column with text_column "
            "(--text-column), or write these as strings."
        )
    long = [row for row, v in enumerate(values) if v is not None and len(v) > MAX_CHARACTERS]
    if long:
        raise BadData(
            f"{table.origin}: {column!r} has a text of {len(values[long[0]]):,} characters, at "
            f"most {MAX_CHARACTERS:,} are read: {describe_rows(table, long)}. Split it."
        )
    empty = [row for row, value in enumerate(values) if _is_empty(value)]
    if empty:
        raise BadData(
            f"{table.origin}: {len(empty)} of {len(values)} texts in {column!r} are empty: "
            f"{describe_rows(table, empty)}. Fill them in, or drop these rows with drop_empty "
            "(--drop-empty)."
        )
    return tuple(v if isinstance(v, str) else conversation_text(v) for v in values)


def _conversations(table: Table, names: Sequence[str]) -> tuple[Any, ...] | None:
    """The conversation of each row that has one; None if no row has."""
    values = table.column(names[0])
    found = tuple(value if isinstance(value, tuple) else None for value in values)
    return found if any(found) else None


def _is_text(value: Any) -> bool:
    """Whether it is a parsed conversation, or a string without lone surrogates, which JSON can
    contain."""
    if isinstance(value, tuple):
        return True
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _joined_texts(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    strings = [_text_column(table, name) for name in names]
    return strings[0] if len(strings) == 1 else tuple(map(" ".join, zip(*strings, strict=True)))


def _drop_empty_rows(
    table: Table, chosen: ColumnChoice, parts: NDArray[np.str_] | None
) -> tuple[Table, NDArray[np.str_] | None]:
    needed = [*chosen.text, *([chosen.pair] if chosen.pair else [])]
    bad = {i for name in needed for i, v in enumerate(table.column(name)) if _is_empty(v)}
    if chosen.label is not None:
        bad |= {i for i, value in enumerate(table.column(chosen.label)) if is_missing(value)}
    if not bad:
        return table, parts
    if len(bad) == len(table):
        raise BadData(f"{table.origin}: all {len(table)} rows have an empty text or no label.")
    rows = [i for i in range(len(table)) if i not in bad]
    note = f"{len(bad)} rows dropped for an empty text or a missing label: "
    selected = table.select(rows, note + describe_rows(table, sorted(bad)))
    return selected, None if parts is None else parts[rows]


def parts_from_column(table: Table) -> tuple[NDArray[np.str_] | None, tuple[str, ...]]:
    """The fixed parts in a `split` column, and a note if its values are not understood."""
    column = part_column(table)
    if column is None:
        return None, ()
    names = [str(value).strip().lower() for value in table.columns[column]]
    unknown = sorted(set(names) - set(PART_BY_SPELLING))
    if unknown:
        note = f"{column!r} is not read as parts: it holds {truncate(unknown[0], 30)!r}"
        return None, (note,)
    return np.array([PART_BY_SPELLING[name] for name in names]), ()


def _class_names_beside(table: Table, label: str) -> tuple[str, ...]:
    """Class names from a `label_text` column next to labels 0, 1, ...; empty without one."""
    beside = table.columns.get(f"{label}_text")
    if beside is None:
        return ()
    pairs = set(zip(map(number_or_none, table.columns[label]), map(str, beside), strict=True))
    names = dict(pairs)
    complete = set(names) <= set(map(float, range(len(names)))) and len(pairs) == len(names)
    return tuple(names[float(i)] for i in range(len(names))) if complete else ()
