"""SQL over all runs, restricted to the tables `runs`, `scores`, `rows`, `samples` and `splits`.

Before DuckDB gets the user's SQL, access to files, network, extensions and Python variables is
disabled and the configuration is locked.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psutil import Process

from cutaway.core.errors import BadSpec
from cutaway.store.query_tables import STREAMED, fill_database, quoted_name

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

# A query with any of these words may use every table; otherwise it uses those that it names, and
# the files of the others are not read.
_MENTIONS_ALL = re.compile(r"show|describe|query|information_schema|duckdb_|pg_", re.IGNORECASE)
_SHOW = re.compile(r"\s*show\b", re.IGNORECASE)


def query(
    folder: Path, sql: str, *, seconds: float = MAX_SECONDS, strict: bool = False
) -> "pl.DataFrame":
    """Run one SELECT, WITH, DESCRIBE or SHOW statement; BadSpec has DuckDB's message.

    A damaged table is left out with a message; with `strict` it is an error.
    """
    with open_database() as connection, _translate_errors(seconds):
        _check_select(connection, sql)
        tables = _tables_of(sql)
        fill_database(connection, folder, tables=tables, strict=strict)
        if _SHOW.match(sql):
            with _same_tables_empty(connection, sorted(tables)) as empty:
                return _execute(empty, sql, seconds)
        return _execute(connection, sql, seconds)


def _same_tables_empty(
    connection: "duckdb.DuckDBPyConnection", tables: Sequence[str]
) -> "duckdb.DuckDBPyConnection":
    """A database that has these tables without rows, and not the views that they are made of."""
    empty = open_database()
    for table in tables:
        columns = connection.sql(f"describe {table}").fetchall()
        listed = ", ".join(f"{quoted_name(name)} {kind}" for name, kind, *_ in columns)
        empty.execute(f"create table {table} ({listed})")
    empty.execute("set lock_configuration = true")
    return empty


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
    """The tables that a query may use."""
    tables = {"runs", "rows", "scores", *STREAMED}
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
