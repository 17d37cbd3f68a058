"""The tables of `cutaway query` as views: over the index, over runs just read, over files."""

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cutaway.console import json_text, show_message
from cutaway.core.errors import Corrupt, CutawayError
from cutaway.store.index_segments import Segment
from cutaway.store.records import (
    RESULT_FILE,
    ROWS_FILE,
    SAMPLES_FILE,
    SPLITS_FILE,
    Record,
    join_names,
    read_record,
)
from cutaway.store.run_index import Gathered, RunTable, gather
from cutaway.store.run_tables import valid_text
from cutaway.store.scores import run_scores

if TYPE_CHECKING:
    import duckdb
    import polars as pl

T = TypeVar("T")

_PLAIN_COLUMNS = (
    "method", "address", "model", "data", "seed", "seconds", "peak_memory_mb", "created", "command",
)  # fmt: skip
_JSON_COLUMNS = ("summary", "baselines", "spec", "versions")
# Tables that may be larger than memory: DuckDB reads the needed columns and rows from the files.
STREAMED = {"samples": SAMPLES_FILE, "splits": SPLITS_FILE}
BATCH_ROWS = 1 << 13
"""Rows of an index that are decoded at a time: all columns of them are in memory."""


def run_line(record: Record) -> "pl.DataFrame":
    """A run's line in the table `runs`; `brief` and `tables` are for listings."""
    values = {
        **{name: valid_text(join_names(getattr(record, name))) for name in ("model", "data")},
        "seed": _int64_or_none(record.seed),
        **{n: _float_or_none(getattr(record, n)) for n in ("seconds", "peak_memory_mb")},
        **{name: valid_text(str(getattr(record, name))) for name in ("created", "command")},
        **{name: _json(getattr(record, name)) for name in _JSON_COLUMNS},
        "brief": json_text({k: v for k, v in record.brief().items() if k != "path"}),
        "tables": json.dumps([name for name, file in STREAMED.items() if file in record.files]),
    }
    return _runs_frame([values], list(values))


def _runs_frame(lines: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pl.DataFrame":
    import polars as pl

    types = {"seed": pl.Int64, "seconds": pl.Float64, "peak_memory_mb": pl.Float64}
    return pl.DataFrame(lines, schema={n: types.get(n, pl.String) for n in columns})


RUNS = RunTable("runs", (RESULT_FILE,), run_line)
ROWS = RunTable("rows", (RESULT_FILE, ROWS_FILE), lambda record: record.rows)
SCORES = RunTable("scores", (RESULT_FILE, ROWS_FILE), run_scores)


def fill_database(
    connection: "duckdb.DuckDBPyConnection",
    folder: Path,
    *,
    tables: Collection[str] = ("runs", "rows"),
    strict: bool = False,
) -> None:
    """Create the tables and lock the configuration."""
    if "runs" in tables:
        _create_runs(connection, folder, gather(folder, RUNS))
    for table in (ROWS, SCORES):
        if table.name in tables:
            found = gather(folder, table)
            _report_damaged(found, strict=strict)
            _create_view(connection, table.name, list(_parts(table.name, found)))
    for name, file in STREAMED.items():
        if name in tables:
            having = list(_runs_having(folder, gather(folder, RUNS), name))
            records = intact_records(having, file, strict=strict)
            _create_view(connection, name, [_file_part(name, one, file) for one in records])
    connection.execute("set lock_configuration = true")


@dataclass(frozen=True)
class _Part:
    """Lines with the same columns, as something that DuckDB reads through Arrow."""

    name: str
    source: Any
    columns: str = ""
    """SQL of columns that come first."""
    without: Sequence[str] = ()
    """Keys of runs whose lines are left out."""


def _create_runs(connection: "duckdb.DuckDBPyConnection", folder: Path, listed: Gathered) -> None:
    """The table `runs`, newest first."""
    none = _Part("runs_none", _runs_frame([], (*_PLAIN_COLUMNS, *_JSON_COLUMNS)).to_arrow())
    _create_view(connection, "listed_runs", [none, *_parts("runs", listed)])
    start = _text(valid_text(str(folder / "x")[:-1]))
    columns = ", ".join(
        (
            *_PLAIN_COLUMNS,
            f"{start} || method || '/' || address as path",
            *(f"{name}::json as {name}" for name in _JSON_COLUMNS),
        )
    )
    connection.execute(
        f"create view runs as select {columns} from listed_runs order by created desc, address desc"
    )


def _create_view(
    connection: "duckdb.DuckDBPyConnection", name: str, parts: Sequence[_Part]
) -> None:
    """A view over parts: columns by name; numbers here and text there become text."""
    mixed = mixed_types([_column_kinds(part.source.schema) for part in parts])
    selects = ["select '' as method, '' as address where false"]
    for part in parts:
        connection.register(part.name, part.source)
        names = [n for n in part.source.schema.names if n in mixed]
        casts = ", ".join(f"{quoted_name(n)}::varchar as {quoted_name(n)}" for n in names)
        columns = f"* replace ({casts})" if casts else "*"
        lacking = ", ".join(map(_text, part.without))
        where = f" where method || '/' || address not in ({lacking})" if lacking else ""
        selects.append(f"select {part.columns}{columns} from {quoted_name(part.name)}{where}")
    connection.execute(f"create view {name} as {' union all by name '.join(selects)}")


def _parts(name: str, found: Gathered) -> Iterator[_Part]:
    """The segments and fresh lines with equal columns together; those of the newest run first."""
    import polars as pl

    place = {key: i for i, key in enumerate(found.keys)}
    parts: list[tuple[int, _Part]] = []
    for segments in _grouped(found.segments, lambda one: one.schema):
        gone = sorted(key for one in segments for key in one.runs if key not in found.stored)
        alive = [place[key] for one in segments for key in one.runs if key in found.stored]
        if alive:
            part = _Part(f"{name}_{len(parts)}", _dataset(segments), without=gone)
            parts.append((min(alive), part))
    fresh = [(place[key], run.frame) for key, run in found.fresh.items()]
    fresh.sort(key=lambda one: one[0])
    for group in _grouped(fresh, lambda one: tuple(one[1].schema.items())):
        table = pl.concat([frame for _, frame in group]).to_arrow()
        parts.append((group[0][0], _Part(f"{name}_{len(parts)}", table)))
    yield from (part for _, part in sorted(parts, key=lambda one: one[0]))


def _grouped(many: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Those with an equal key together, in the order of the first of each."""
    groups: dict[Hashable, list[T]] = {}
    for one in many:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _dataset(segments: Sequence[Segment]) -> Any:
    """Segments with equal columns; text is decoded as codes of a dictionary, which is smaller."""
    from pyarrow import dataset, types

    text = [one.name for one in segments[0].schema if types.is_large_string(one.type)]
    options = dataset.ParquetFragmentScanOptions(pre_buffer=False)
    parquet = dataset.ParquetFileFormat(
        dictionary_columns=text, default_fragment_scan_options=options
    )
    fragments = [parquet.make_fragment(one.buffer()) for one in segments]
    return _small_batches()(fragments, fragments[0].physical_schema, parquet)


@cache
def _small_batches() -> Any:
    """A dataset that is read in small batches, none in advance: else a scan takes a gigabyte."""
    from pyarrow import dataset

    class SmallBatches(dataset.FileSystemDataset):  # type: ignore[misc]
        """DuckDB asks for a scanner of the columns and rows that a query needs."""

        def scanner(self, **options: Any) -> Any:
            small = {"batch_size": BATCH_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
            return super().scanner(**options | small | {"use_threads": False})

    return SmallBatches


def _file_part(name: str, record: Record, file: str) -> _Part:
    from pyarrow import dataset

    columns = f"{_text(record.method)} as method, {_text(record.address)} as address, "
    source = dataset.dataset(record.file(file))
    return _Part(f"{name}_{record.method}_{record.address}", source, columns)


def _runs_having(folder: Path, listed: Gathered, table: str) -> Iterator[Record]:
    """The runs that have kept this table, newest first."""
    for line in listed.frame(("method", "address", "tables")).iter_rows(named=True):
        if table in json.loads(line["tables"]):
            # Missing or damaged: it has changed just now.
            with suppress(CutawayError):
                yield read_record(folder / line["method"] / line["address"])


def _report_damaged(found: Gathered, *, strict: bool) -> None:
    """Name the runs whose table can't be read; Corrupt if that is all of them."""
    for key in found.keys:
        if key in found.damaged:
            _left_out(found.damaged[key][1], strict=strict)
    if found.damaged and len(found.damaged) == len(found.keys):
        raise _none_readable(len(found.keys), ROWS_FILE, list(found.damaged.values())[-1][1])


def intact_records(
    records: Sequence[Record], file: str = ROWS_FILE, *, strict: bool = False
) -> list[Record]:
    """The runs whose table is intact; the others are named in a message, or with `strict` raised.

    Corrupt if no table could be read.
    """
    intact, reason = [], None
    for record in records:
        try:
            record.rows if file == ROWS_FILE else record.file(file)
            intact.append(record)
        except CutawayError as error:
            reason = error
            _left_out(error, strict=strict)
    if reason is not None and not intact:
        raise _none_readable(len(records), file, reason)
    return intact


def _left_out(error: CutawayError, *, strict: bool) -> None:
    if strict:
        raise error
    show_message(f"Left out: {error}")


def _none_readable(count: int, file: str, reason: CutawayError) -> Corrupt:
    return Corrupt(f"None of {count} tables {file} could be read. {reason}")


def mixed_types(tables: Sequence[Mapping[str, str]]) -> set[str]:
    """Columns that are of one kind in a table and of another kind in another table."""
    kinds: dict[str, set[str]] = {}
    for table in tables:
        for name, kind in table.items():
            kinds.setdefault(name, set()).add(kind)
    return {name for name, found in kinds.items() if len(found) > 1}


def _column_kinds(schema: Any) -> dict[str, str]:
    """What each column of an Arrow schema holds; all numbers are of one kind, and all text."""
    from pyarrow import types

    def kind(dtype: Any) -> str:
        dtype = dtype.value_type if types.is_dictionary(dtype) else dtype
        if types.is_integer(dtype) or types.is_floating(dtype):
            return "number"
        text = types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype)
        return "text" if text else str(dtype)

    return {one.name: kind(one.type) for one in schema if not types.is_null(one.type)}


def _text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def quoted_name(value: str) -> str:
    """The name of a column or view in SQL."""
    return '"' + value.replace('"', '""') + '"'


def _json(value: Any) -> str:
    return valid_text(json.dumps(value, ensure_ascii=False))


def _int64_or_none(value: Any) -> int | None:
    """The value if it is a 64-bit integer; lists of seeds and larger seeds are in the spec."""
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _float_or_none(value: float | None) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return None
