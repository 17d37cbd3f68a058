"""A table with chosen columns becomes a TextSet, or an error that says which rows are wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import PARTS, TextSet
from cutaway.data import columns as cols
from cutaway.data.generator_options import make_rng
from cutaway.data.labels import encode_label_column, is_missing, number_or_none
from cutaway.data.part_names import PART_BY_SPELLING
from cutaway.data.table import Table, describe_rows, truncate


def make_text_set(
    table: Table,
    chosen: cols.ColumnChoice,
    *,
    name: str,
    as_task: str | None = None,
    parts: NDArray[np.str_] | None = None,
    drop_empty: bool = False,
) -> TextSet:
    """The text set of a table. Empty texts and missing labels are refused, or dropped if asked."""
    if len(table) == 0:
        raise BadData(f"{table.origin} has no rows: it needs at least one.")
    if parts is None:
        parts, part_notes = parts_from_column(table)
        table = Table(**{**vars(table), "notes": table.notes + part_notes})
    if drop_empty:
        table, parts = _drop_empty_rows(table, chosen, parts)
    labels = None
    if chosen.label is not None and as_task != "text":
        names = table.names.get(chosen.label) or _class_names_beside(table, chosen.label)
        labels = encode_label_column(table, chosen.label, as_task=as_task, names=names)
    return TextSet(
        name=name,
        texts=_joined_texts(table, chosen.text),
        labels=labels.values if labels else None,
        task=labels.task if labels else "text",
        classes=labels.classes if labels else (),
        pairs=_text_column(table, chosen.pair) if chosen.pair else None,
        parts=parts,
        notes=(*table.notes, *((chosen.said(),) if chosen.guessed else ())),
        meta={"source": table.origin, "columns": chosen.said(), **_facts(table)},
    )


def subsample_rows(textset: TextSet, limit: int | None, seed: int) -> TextSet:
    """At most `limit` random rows in their old order; each part keeps its share."""
    if limit is None or limit >= len(textset):
        return textset
    if limit < 1:
        raise BadSpec(f"limit must be at least 1, got {limit}.")
    rng = make_rng(seed)
    rows = np.arange(len(textset))
    groups = [rows] if textset.parts is None else [rows[textset.parts == p] for p in PARTS]
    shares = _proportional_counts([len(group) for group in groups], limit)
    picked = [rng.choice(g, size=k, replace=False) for g, k in zip(groups, shares, strict=True)]
    return take(textset, np.sort(np.concatenate(picked)))


def take(textset: TextSet, rows: NDArray[np.integer]) -> TextSet:
    """The chosen rows, with those arrays in `meta` that hold one entry per row."""
    meta = {
        key: value[rows] if isinstance(value, np.ndarray) and len(value) == len(textset) else value
        for key, value in textset.meta.items()
    }
    chosen = textset.take(rows)
    return TextSet(**{**{f: getattr(chosen, f) for f in _FIELDS}, "meta": meta})


_FIELDS = ("name", "texts", "labels", "task", "classes", "pairs", "parts", "notes")


def _proportional_counts(sizes: Sequence[int], limit: int) -> list[int]:
    """`limit` dealt out in proportion to the sizes, by largest remainder."""
    total = sum(sizes)
    exact = [size * limit / total for size in sizes]
    shares = [int(value) for value in exact]
    by_rest = sorted(range(len(sizes)), key=lambda i: shares[i] - exact[i])
    for i in by_rest[: limit - sum(shares)]:
        shares[i] += 1
    return shares


def _text_column(table: Table, column: str) -> tuple[str, ...]:
    """A column of texts; BadData for empty ones, for numbers and for half characters."""
    values = table.column(column)
    odd = [row for row, value in enumerate(values) if value is not None and not _is_text(value)]
    if odd:
        raise BadData(
            f"{table.origin}: {column!r} holds {truncate(repr(values[odd[0]]), 40)} where text is "
            f"expected: {describe_rows(table, odd)}. Name another column with text_column "
            "(--text-column), or write these as strings."
        )
    empty = [row for row, value in enumerate(values) if _is_empty(value)]
    if empty:
        raise BadData(
            f"{table.origin}: {len(empty)} of {len(values)} texts in {column!r} are empty: "
            f"{describe_rows(table, empty)}. Fill them in, or drop these rows with drop_empty "
            "(--drop-empty)."
        )
    return tuple(values)


def _is_text(value: Any) -> bool:
    """Whether it is a string of whole characters: JSON can spell half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _is_empty(value: Any) -> bool:
    return value is None or not value.strip()


def _joined_texts(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    strings = [_text_column(table, name) for name in names]
    return strings[0] if len(strings) == 1 else tuple(map(" ".join, zip(*strings, strict=True)))


def _drop_empty_rows(
    table: Table, chosen: cols.ColumnChoice, parts: NDArray[np.str_] | None
) -> tuple[Table, NDArray[np.str_] | None]:
    needed = [*chosen.text, *([chosen.pair] if chosen.pair else [])]
    bad = {i for name in needed for i, v in enumerate(table.column(name)) if _is_gone(v)}
    if chosen.label is not None:
        bad |= {i for i, value in enumerate(table.column(chosen.label)) if is_missing(value)}
    if not bad:
        return table, parts
    if len(bad) == len(table):
        raise BadData(f"{table.origin}: all {len(table)} rows have an empty text or no label.")
    rows = [i for i in range(len(table)) if i not in bad]
    note = f"{len(bad)} rows dropped for an empty text or a missing label: "
    kept = table.keep(rows, note + describe_rows(table, sorted(bad)))
    return kept, None if parts is None else parts[rows]


def _is_gone(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def parts_from_column(table: Table) -> tuple[NDArray[np.str_] | None, tuple[str, ...]]:
    """The fixed parts that a `split` column names, and a note when it can't be understood."""
    column = cols.part_column(table)
    if column is None:
        return None, ()
    said = [str(value).strip().lower() for value in table.columns[column]]
    unknown = sorted(set(said) - set(PART_BY_SPELLING))
    if unknown:
        note = f"{column!r} is not read as parts: it holds {truncate(unknown[0], 30)!r}"
        return None, (note,)
    return np.array([PART_BY_SPELLING[value] for value in said]), ()


def _class_names_beside(table: Table, label: str) -> tuple[str, ...]:
    """The class names in a `label_text` column beside numbers 0, 1, ...; nothing without one."""
    beside = table.columns.get(f"{label}_text")
    if beside is None:
        return ()
    numbers = [number_or_none(value) for value in table.columns[label]]
    known = dict(zip(numbers, map(str, beside), strict=True))
    whole = set(known) <= set(map(float, range(len(known)))) and None not in known
    one_to_one = len(set(zip(numbers, map(str, beside), strict=True))) == len(known)
    return tuple(known[float(i)] for i in range(len(known))) if whole and one_to_one else ()


def _facts(table: Table) -> dict[str, Any]:
    return {"facts": table.facts} if table.facts else {}
