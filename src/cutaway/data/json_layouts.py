"""Tables from JSON, or from Python values of the same layout.

Known layouts: a list of objects; a list of strings; columns ({"text": [...], "label": [...]}),
also with {index: value} dicts as columns; any of these under "data"; one of these per part
({"train": ..., "test": ...}); and both layouts of the probing reference's dataset files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cutaway.core.errors import BadData
from cutaway.data.part_names import PART_BY_SPELLING
from cutaway.data.table import Table, concat_tables, table_from_rows, truncate

KNOWN_LAYOUTS = (
    'a list of objects, {"data": [...]}, or columns such as {"text": [...], "label": [...]}'
)


def table_from_json(origin: str, value: Any) -> Table:
    """The table in a parsed JSON value; BadData lists the known layouts."""
    if isinstance(value, Mapping):
        return _from_mapping(origin, value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _from_list(origin, value)
    raise BadData(
        f"{origin} holds {truncate(repr(value), 40)}, not rows. Known layouts: {KNOWN_LAYOUTS}."
    )


def _from_list(origin: str, rows: Sequence[Any]) -> Table:
    if all(isinstance(row, str) for row in rows):
        return Table(origin, {"text": list(rows)})
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadData(
                f"{origin}, row {number}: {truncate(repr(row), 40)} is not an object. "
                'Every row needs the same shape: {"text": ..., "label": ...}.'
            )
    return table_from_rows(origin, rows)


def _from_mapping(origin: str, value: Mapping[str, Any]) -> Table:
    if value and all(str(key).lower() in PART_BY_SPELLING for key in value):
        return _from_parts(origin, value)
    if "data" in value:
        table = table_from_json(origin, value["data"])
        return _with_metadata(table, {key: v for key, v in value.items() if key != "data"})
    if value and all(str(key).startswith("experiment") for key in value):
        raise BadData(
            f"{origin} is an experiment log of the probing reference, not text. "
            "Import its results with: cutaway import"
        )
    columns = {str(k): _column(origin, k, v) for k, v in value.items()}
    return Table(origin, _check_equal_lengths(origin, columns))


def _from_parts(origin: str, value: Mapping[str, Any]) -> Table:
    tables = [table_from_json(f"{origin}[{key}]", rows) for key, rows in value.items()]
    joined = concat_tables(origin, tables)
    names = [PART_BY_SPELLING[key.lower()] for key in value]
    parts = [name for name, table in zip(names, tables, strict=True) for _ in range(len(table))]
    return Table(origin, {**joined.columns, "split": parts}, joined.starts, joined.notes)


def _column(origin: str, name: str, values: Any) -> list[Any]:
    """A column as a list; {index: value} dicts are sorted by index."""
    as_list = getattr(values, "tolist", None) or getattr(values, "to_list", None)
    if as_list is not None:
        values = as_list()
    if isinstance(values, Mapping):
        return [values[key] for key in _numeric_order(origin, name, list(values))]
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    raise BadData(
        f"{origin}: {name!r} holds {truncate(repr(values), 40)}, not a column of values. "
        f"Known layouts: {KNOWN_LAYOUTS}."
    )


def _numeric_order(origin: str, name: str, keys: list[Any]) -> list[Any]:
    for key in keys:
        try:
            int(key)
        except (TypeError, ValueError, OverflowError):
            raise BadData(
                f"{origin}: the rows of {name!r} are keyed by {truncate(repr(key), 40)}, "
                "expected row numbers."
            ) from None
    return sorted(keys, key=int)


def _check_equal_lengths(origin: str, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{truncate(name, 30)!r} {size}" for name, size in [*sizes.items()][:8])
        raise BadData(f"{origin}: columns of different lengths ({shown}). They must be equal.")
    return columns


def _with_metadata(table: Table, metadata: dict[str, Any]) -> Table:
    """The table with the file's metadata; a wrong size in it is noted."""
    notes = list(table.notes)
    size = metadata.get("size")
    if isinstance(size, int) and size != len(table):
        notes.append(f"{table.origin} claims {size} rows and has {len(table)}")
    names = dict.fromkeys(("label", "labels"), _class_names(metadata.get("labels")))
    return Table(table.origin, table.columns, table.starts, tuple(notes), metadata, names)


def _class_names(labels: Any) -> tuple[str, ...]:
    """The class names in {"0": "Negative", "1": "Positive"}; empty for anything else."""
    if not isinstance(labels, Mapping):
        return ()
    if set(map(str, labels)) != set(map(str, range(len(labels)))):
        return ()
    return tuple(str(labels[key]) for key in sorted(labels, key=int))
