"""SQL over all runs, restricted to the tables `runs`, `scores`, `rows`, `samples` and `splits`.

Before DuckDB gets the user's SQL, access to files, network, extensions and Python variables is
disabled and the configuration is locked.
"""

import json
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psutil import Process

from cutaway.console import show_message
from cutaway.core.errors import BadSpec, Corrupt, CutawayError
from cutaway.store.records import ROWS_FILE, SAMPLES_FILE, SPLITS_FILE, Record, join_names
from cutaway.store.run_tables import concat_tables, mixed_types, rows_of_runs, valid_text
from cutaway.store.scores import run_scores

if TYPE_CHECKING:
    import duckdb
    import polars as pl

MAX_SECONDS = 120.0
MAX_ROWS = 5_000_000
MAX_BYTES, MAX_CELL_BYTES = 2**28, 2**24
"""Of an answer and of one of its cells."""
EXTRA_MEMORY = 3 * 2**29
"""What a query may take on top of the memory in use; DuckDB's own limit omits long strings."""

_SANDBOX: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "1GB",
}

_RUN_COLUMNS = (
    "method", "address", "model", "data", "seed", "seconds", "peak_memory_mb", "created",
    "command", "path",
)  # fmt: skip
_JSON_COLUMNS = ("summary", "baselines", "spec", "versions")

# A query with any of these words may use every table; otherwise it uses those that it names, and
# the files of the others are not read.
_MENTIONS_ALL = re.compile(r"show|describe|query|information_schema|duckdb_|pg_", re.IGNORECASE)
# Tables that may be larger than memory: DuckDB reads the needed columns and rows from the files.
_STREAMED = {"samples": SAMPLES_FILE, "splits": SPLITS_FILE}


def query(
    records: Sequence[Record], sql: str, *, seconds: float = MAX_SECONDS, strict: bool = False
) -> "pl.DataFrame":
    """Run one SELECT, WITH, DESCRIBE or SHOW statement; BadSpec has DuckDB's message.

    A damaged table is left out with a message; with `strict` it is an error.
    """
    with open_database() as connection, _translate_errors(seconds):
        _check_select(connection, sql)
        fill_database(connection, records, tables=_tables_of(sql), strict=strict)
        return _execute(connection, sql, seconds)


def open_database() -> "duckdb.DuckDBPyConnection":
    """A sandboxed in-memory database."""
    import duckdb

    return duckdb.connect(":memory:", config=_SANDBOX)


def query_database(
    connection: "duckdb.DuckDBPyConnection", sql: str, *, seconds: float = MAX_SECONDS
) -> "pl.DataFrame":
    """Query a database that was filled before; the same errors as `query`."""
    with _translate_errors(seconds):
        _check_select(connection, sql)
        return _execute(connection, sql, seconds)


def _tables_of(sql: str) -> set[str]:
    """The tables that a query may use, besides `runs`."""
    tables = {"rows", "scores", *_STREAMED}
    return tables if _MENTIONS_ALL.search(sql) else {n for n in tables if n in sql.lower()}


@contextmanager
def _translate_errors(seconds: float) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise BadSpec(
            f"The query took more than {seconds:g} seconds. Add a limit or a filter."
        ) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise _too_much_memory() from None
    except OSError as error:
        # How pyarrow reports errors that DuckDB raises while an answer is read.
        raise (
            _too_much_memory()
            if "Out of Memory" in str(error)
            else BadSpec(f"The query failed. {error}")
        ) from None
    except duckdb.Error as error:
        raise BadSpec(f"The query failed. {error}") from None


def _too_much_memory() -> BadSpec:
    return BadSpec(
        f"The query needs more than {EXTRA_MEMORY / 2**30:g} GB. Add a limit or a filter."
    )


def _check_select(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    import duckdb

    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise BadSpec(f"The query is not valid text: {error}.") from None
    kinds = [statement.type for statement in connection.extract_statements(sql)]
    if kinds != [duckdb.StatementType.SELECT]:
        names = ", ".join(kind.name for kind in kinds) or "nothing"
        raise BadSpec(
            f"A query must be one SELECT, WITH, DESCRIBE or SHOW statement, got: {names}. "
            'Example: "select model, data, metric, max(value) from scores group by all".'
        )


def fill_database(
    connection: "duckdb.DuckDBPyConnection",
    records: Sequence[Record],
    *,
    tables: Collection[str] = ("rows",),
    strict: bool = False,
) -> None:
    """Create the tables and lock the configuration."""
    frame = _runs_frame(records)
    connection.register("listed", frame.to_arrow())
    as_json = ", ".join(f"{name}::json as {name}" for name in _JSON_COLUMNS)
    connection.execute(f"create table runs as select * replace ({as_json}) from listed")
    connection.unregister("listed")
    if "rows" in tables:
        read = intact_records(records, ROWS_FILE, strict=strict)
        connection.register("rows", rows_of_runs(read).to_arrow())
    if "scores" in tables:
        read = intact_records(records, ROWS_FILE, strict=strict)
        scores = concat_tables([(one, run_scores(one)) for one in read])
        connection.register("scores", scores.to_arrow())
    for name, file in _STREAMED.items():
        if name in tables:
            having = [record for record in records if file in record.files]
            _stream_table(connection, name, intact_records(having, file, strict=strict), file)
    connection.execute("set lock_configuration = true")


def intact_records(
    records: Sequence[Record], file: str = ROWS_FILE, *, strict: bool = False
) -> list[Record]:
    """The runs whose table is intact; the others are named in a message, or with `strict` raised.

    Corrupt if no table could be read.
    """
    intact, reason = [], ""
    for record in records:
        try:
            record.rows if file == ROWS_FILE else record.file(file)
            intact.append(record)
        except CutawayError as error:
            if strict:
                raise
            reason = str(error)
            show_message(f"Left out: {reason}")
    if records and not intact:
        raise Corrupt(f"None of {len(records)} tables {file} could be read. {reason}")
    return intact


def _stream_table(
    connection: "duckdb.DuckDBPyConnection", name: str, records: Sequence[Record], file: str
) -> None:
    """A view over the files of these runs: columns by name, with method and address first."""
    from pyarrow import dataset

    parts = {f"{name}_{r.method}_{r.address}": (r, dataset.dataset(r.file(file))) for r in records}
    mixed = mixed_types([_column_kinds(part.schema) for _, part in parts.values()])
    selects = ["select '' as method, '' as address where false"]
    for view, (record, part) in parts.items():
        connection.register(view, part)
        casts = ", ".join(f'"{n}"::varchar as "{n}"' for n in part.schema.names if n in mixed)
        columns = f"* replace ({casts})" if casts else "*"
        run = f"'{record.method}' as method, '{record.address}' as address"
        selects.append(f'select {run}, {columns} from "{view}"')
    connection.execute(f"create view {name} as {' union all by name '.join(selects)}")


def _column_kinds(schema: Any) -> dict[str, str]:
    """What each column of an Arrow schema holds; all numbers are of one kind, and all text."""
    from pyarrow import types

    def kind(dtype: Any) -> str:
        if types.is_integer(dtype) or types.is_floating(dtype):
            return "number"
        text = types.is_string(dtype) or types.is_large_string(dtype)
        return "text" if text else str(dtype)

    return {one.name: kind(one.type) for one in schema if not types.is_null(one.type)}


def _execute(connection: "duckdb.DuckDBPyConnection", sql: str, seconds: float) -> "pl.DataFrame":
    import polars as pl
    import pyarrow

    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        with _limited_memory():
            reader = connection.sql(sql).limit(MAX_ROWS + 1).to_arrow_reader(10_000)
            batches = list(_within_bounds(reader))
            table = pyarrow.Table.from_batches(batches, reader.schema)
    finally:
        timer.cancel()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _within_bounds(reader: Any) -> Iterator[Any]:
    """The batches of an answer; BadSpec when they are too many or too large."""
    rows = size = 0
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > MAX_ROWS:
            raise BadSpec(f"The answer has more than {MAX_ROWS} rows. Add a limit, or group them.")
        if size > MAX_BYTES or _longest_cell(batch) > MAX_CELL_BYTES:
            raise BadSpec(
                f"The answer is larger than {MAX_BYTES // 2**20} MB, or one of its cells than "
                f"{MAX_CELL_BYTES // 2**20} MB. Add a limit, or ask for fewer columns."
            )
        yield batch


def _longest_cell(batch: Any) -> int:
    """The bytes of the longest text of a batch."""
    from pyarrow import compute, types

    texts = [c for c in batch.columns if types.is_string(c.type) or types.is_large_string(c.type)]
    return max((compute.max(compute.binary_length(c)).as_py() or 0 for c in texts), default=0)


_LIMIT_LOCK = threading.Lock()


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Within the block this process can take `EXTRA_MEMORY` more, where the system can limit it."""
    try:
        import resource

        used = Process().memory_info().vms
    except ImportError:  # Windows
        yield
        return
    with _LIMIT_LOCK:
        before = resource.getrlimit(resource.RLIMIT_AS)
        limits = [used + EXTRA_MEMORY, *(one for one in before if one != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _runs_frame(records: Sequence[Record]) -> "pl.DataFrame":
    import polars as pl

    types = {"seed": pl.Int64, "seconds": pl.Float64, "peak_memory_mb": pl.Float64}
    schema = {name: types.get(name, pl.String) for name in (*_RUN_COLUMNS, *_JSON_COLUMNS)}
    return pl.DataFrame([_run_row(record) for record in records], schema=schema, orient="row")


def _run_row(record: Record) -> dict[str, Any]:
    plain = ("method", "address", "created", "command", "path")
    return {
        **{name: valid_text(str(getattr(record, name))) for name in plain},
        **{name: valid_text(join_names(getattr(record, name))) for name in ("model", "data")},
        "seed": _int64_or_none(record.seed),
        **{n: _float_or_none(getattr(record, n)) for n in ("seconds", "peak_memory_mb")},
        **{name: _json(getattr(record, name)) for name in _JSON_COLUMNS},
    }


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
