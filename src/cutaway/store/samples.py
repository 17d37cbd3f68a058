"""Tables beside the rows of a run: `samples.parquet`, written in pieces, and `splits.parquet`.

samples.parquet    one row per sample (prediction, lens cell); only with `--samples`
splits.parquet     which rows of which set were used for what, and the marked positions

Pieces of the samples are kept with the pieces of the unfinished run and put together when it is
saved, so that a killed run neither loses nor repeats a row, and memory holds one piece at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.digest import digest_rows, digest_text
from cutaway.core.errors import BadData, Corrupt
from cutaway.core.textset import TextSet
from cutaway.store import files

if TYPE_CHECKING:
    import polars as pl
    import pyarrow

GROUP_ROWS = 1 << 16
"""Rows of the merged file that are in memory at the same time, in addition to one piece."""
DIGEST_DIGITS = 16

_KEY = b"cutaway.key"
_RESERVED = ("method", "address")


@dataclass(frozen=True)
class SamplePieces:
    """The samples of an unfinished run, in pieces named by keys."""

    folder: Path

    def put(self, key: str, table: "pl.DataFrame") -> None:
        """Write a piece; it is on disk when this returns, and replaces a piece of the same key.

        Put the samples of a piece before its rows are marked as done in the run's progress.
        """
        import polars as pl

        taken = [name for name in table.columns if name.lower() in _RESERVED]
        if taken:
            raise BadData(f"Columns called {', '.join(taken)} are reserved: name them otherwise.")
        arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest())
        files.write_atomic(self._path(key), _parquet(arrow.replace_schema_metadata({_KEY: key})))

    def done(self) -> set[str]:
        """The keys of all pieces."""
        return {key for key, _ in self._pieces()}

    def merge(self, target: Path) -> Path:
        """All pieces in the order of their keys as one file; columns are matched by name."""
        import pyarrow
        from pyarrow import parquet

        pieces = [path for _, path in sorted(self._pieces())]
        if not pieces:
            raise BadData(f"No samples were kept in {str(self.folder)!r}.")
        with _damaged(self.folder):
            schema = pyarrow.unify_schemas(
                [parquet.read_schema(path).remove_metadata() for path in pieces],
                promote_options="permissive",
            )
            with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
                for group in _groups(pieces, schema):
                    writer.write_table(group)
        return target

    def _path(self, key: str) -> Path:
        return self.folder / f"{digest_text(key)[:32]}.parquet"

    def _pieces(self) -> Iterator[tuple[str, Path]]:
        from pyarrow import parquet

        for path in self.folder.glob("*.parquet"):
            with _damaged(self.folder):
                yield parquet.read_schema(path).metadata[_KEY].decode(), path


def prediction_frame(
    coordinates: Mapping[str, Any],
    *,
    part: str,
    rows: Sequence[int],
    digests: Sequence[str] | Mapping[int, str],
    truth: Sequence[Any],
    answer: Sequence[Any],
    score: Sequence[float],
) -> "pl.DataFrame":
    """Predictions as samples: the cell's coordinates, then one line per predicted row of a set.

    `rows` are row numbers in the set, `digests` are those of the whole set (`text_digests`). Truth
    and answer are kept as text, so that methods share the columns: give class names where there
    are classes. `score` is the probability of the answer, or else the classifier's own score of it.
    """
    import polars as pl

    columns = {
        "part": pl.Series([part]).new_from_index(0, len(rows)),
        "row": pl.Series(rows, dtype=pl.Int64),
        "text_digest": pl.Series([digests[i] for i in rows], dtype=pl.String),
        "truth": pl.Series([str(one) for one in truth], dtype=pl.String),
        "answer": pl.Series([str(one) for one in answer], dtype=pl.String),
        "score": pl.Series(score, dtype=pl.Float64).fill_nan(None),
    }
    shared = [pl.lit(value).alias(name) for name, value in coordinates.items()]
    return pl.DataFrame(columns).select(*shared, pl.all())


def split_frame(
    name: str,
    part: str,
    rows: Sequence[int],
    digests: Sequence[str] | Mapping[int, str],
    *,
    repeat: int | None = None,
    positions: Sequence[int] | None = None,
) -> "pl.DataFrame":
    """Which rows of the set `name` were used as `part`, and at which token positions.

    A row with several positions is given once for each. Concatenate the frames of all sets, parts
    and repeats for `Outcome.splits`.
    """
    import polars as pl

    columns = {
        "set": pl.Series([name]).new_from_index(0, len(rows)),
        "part": pl.Series([part]).new_from_index(0, len(rows)),
        "repeat": pl.Series([repeat], dtype=pl.Int64).new_from_index(0, len(rows)),
        "row": pl.Series(rows, dtype=pl.Int64),
        "position": pl.Series(
            [None] * len(rows) if positions is None else positions, dtype=pl.Int64
        ),
        "text_digest": pl.Series([digests[i] for i in rows], dtype=pl.String),
    }
    return pl.DataFrame(columns)


def text_digests(texts: TextSet) -> list[str]:
    """The first 16 digits of the SHA-256 of each text of a set; of both texts of a pair."""
    if texts.pairs is None:
        return [digest_text(text)[:DIGEST_DIGITS] for text in texts.texts]
    pairs = zip(texts.texts, texts.pairs, strict=True)
    return [digest_rows(pair)[:DIGEST_DIGITS] for pair in pairs]


@contextmanager
def _damaged(folder: Path) -> Iterator[None]:
    """Corrupt for a piece that can't be read: its rows may be marked as done already."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, KeyError, TypeError) as error:
        raise Corrupt(
            f"A piece in {str(folder)!r} is damaged: {error}. Remove {str(folder.parent)!r} and "
            "repeat the command."
        ) from None


def _groups(pieces: Sequence[Path], schema: "pyarrow.Schema") -> Iterator["pyarrow.Table"]:
    """The pieces as tables of about equal size: small pieces together."""
    import pyarrow
    from pyarrow import parquet

    held: list[pyarrow.Table] = []
    for path in pieces:
        held.append(parquet.read_table(path).replace_schema_metadata(None))
        if sum(len(table) for table in held) >= GROUP_ROWS:
            yield _joined(held, schema)
            held = []
    if held:
        yield _joined(held, schema)


def _joined(tables: Sequence["pyarrow.Table"], schema: "pyarrow.Schema") -> "pyarrow.Table":
    import pyarrow

    joined = pyarrow.concat_tables(tables, promote_options="permissive")
    for name in set(schema.names) - set(joined.column_names):
        joined = joined.append_column(name, pyarrow.nulls(len(joined)))
    return joined.select(schema.names).cast(schema)


def _parquet(table: "pyarrow.Table") -> bytes:
    from pyarrow import parquet

    buffer = BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
