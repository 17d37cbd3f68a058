"""Tests of the segments of an index."""

import polars as pl
import pytest

from cutaway.store import index_files, index_segments
from cutaway.store.index_segments import Entry, IndexWriter, read_index, read_segments

LINES = pl.DataFrame({"method": ["m", "m"], "address": ["a", "b"], "value": [1.5, None]})


@pytest.fixture(autouse=True)
def _key() -> None:
    index_files.read_key(make=True)


def entry(number: int = 1) -> Entry:
    return Entry("", f"2026-01-0{number}", [number])


def test_lines_come_back_as_they_were(tmp_path) -> None:
    writer = IndexWriter(tmp_path, "rows")
    writer.add_lines({"m/a": entry(1), "m/b": entry(2)}, LINES)
    writer.finish()
    index = read_index(tmp_path, "rows")
    (segment,) = read_segments(tmp_path, index).values()
    assert index.runs == {k: Entry(segment.name, e.created, e.stamp)
                          for k, e in (("m/a", entry(1)), ("m/b", entry(2)))}  # fmt: skip
    assert segment.frame(("m/a", "m/b")).equals(LINES)
    assert segment.frame(("m/b",), ["value"]).rows() == [("m", "b", None)]


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        (pl.Series([1], dtype=pl.UInt64), True),
        (pl.Series([None]), True),
        (pl.Series([[1]]), False),
        (pl.Series(["a"], dtype=pl.Categorical), False),
        (pl.Series([b"a"]), False),
    ],
)
def test_only_columns_that_come_back_the_same_are_stored(tmp_path, column, stored) -> None:
    writer = IndexWriter(tmp_path, "rows")
    lines = pl.DataFrame({"method": ["m"], "address": ["a"], "x": column})
    writer.add_lines({"m/a": entry()}, lines)
    writer.finish()
    index = read_index(tmp_path, "rows")
    assert (index.runs["m/a"].segment != index_segments.NOT_STORED) == stored
    for segment in read_segments(tmp_path, index).values():
        assert (
            segment.frame(("m/a",)).equals(lines) and segment.frame(("m/a",)).schema == lines.schema
        )


def test_runs_without_lines_and_runs_left_out_are_remembered(tmp_path) -> None:
    writer = IndexWriter(tmp_path, "rows")
    writer.add_lines({"m/a": entry()}, LINES.select("method", "address").clear())
    writer.leave_out("m/b", None)
    writer.finish()
    index = read_index(tmp_path, "rows")
    assert {key: one.segment for key, one in index.runs.items()} == {
        "m/a": index_segments.NO_LINES, "m/b": index_segments.NOT_STORED,
    }  # fmt: skip


def test_no_index_is_an_empty_one(tmp_path) -> None:
    assert read_index(tmp_path, "rows").runs == {}


def test_lines_of_different_columns_are_in_different_segments(tmp_path) -> None:
    writer = IndexWriter(tmp_path, "rows")
    writer.add_lines({"m/a": entry()}, LINES)
    writer.add_lines({"m/c": entry()}, LINES.cast({"value": pl.Float32}))
    writer.finish()
    assert len(read_segments(tmp_path, read_index(tmp_path, "rows"))) == 2
