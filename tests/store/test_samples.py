"""Samples are written in pieces and merged: no row is lost or repeated, columns match by name."""

import polars as pl
import pyarrow.parquet
import pytest

from cutaway.core.digest import digest_text
from cutaway.core.errors import BadData, Corrupt
from cutaway.core.textset import TextSet
from cutaway.store import samples
from cutaway.store.samples import SamplePieces, prediction_frame, split_frame, text_digests


@pytest.fixture
def pieces(tmp_path) -> SamplePieces:
    return SamplePieces(tmp_path / "run.partial" / "samples")


def merged(pieces: SamplePieces, tmp_path) -> pl.DataFrame:
    return pl.read_parquet(pieces.merge(tmp_path / "merged.parquet"))


def test_pieces_are_merged_in_the_order_of_their_keys_whatever_the_order_of_writing(
    pieces, tmp_path
) -> None:
    for key in ("c", "a", "b"):
        pieces.put(key, pl.DataFrame({"key": [key] * 2, "n": [0, 1]}))
    assert pieces.done() == {"a", "b", "c"}
    assert merged(pieces, tmp_path)["key"].to_list() == list("aabbcc")


def test_a_piece_that_is_written_again_replaces_itself(pieces, tmp_path) -> None:
    pieces.put("a", pl.DataFrame({"n": [0, 1]}))
    pieces.put("a", pl.DataFrame({"n": [2]}))
    assert merged(pieces, tmp_path)["n"].to_list() == [2]


def test_an_unfinished_write_is_ignored(pieces, tmp_path) -> None:
    pieces.put("a", pl.DataFrame({"n": [0]}))
    [path] = pieces.folder.iterdir()
    path.with_name(f"{path.name}.tmp-1").write_bytes(b"half of a pie")
    assert merged(pieces, tmp_path)["n"].to_list() == [0]


def test_columns_are_matched_by_name_and_types_widened(pieces, tmp_path) -> None:
    pieces.put("a", pl.DataFrame({"n": [1], "words": [["x", "y"]], "empty": [None]}))
    pieces.put("b", pl.DataFrame({"empty": ["text"], "n": [0.5]}))
    assert merged(pieces, tmp_path).rows() == [(1.0, ["x", "y"], None), (0.5, None, "text")]


def test_memory_holds_a_group_of_rows_at_a_time(pieces, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(samples, "GROUP_ROWS", 5)
    for key in "abcdef":
        pieces.put(key, pl.DataFrame({"n": range(3), "key": key}))
    # Columns that only later pieces have are in every group.
    pieces.put("g", pl.DataFrame({"n": [9], "late": [True]}))
    file = pyarrow.parquet.ParquetFile(pieces.merge(tmp_path / "merged.parquet"))
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [6, 6, 6, 1]
    assert file.read()["late"].to_pylist() == [None] * 18 + [True]


def test_reserved_columns_and_missing_pieces_are_refused(pieces, tmp_path) -> None:
    with pytest.raises(BadData, match="called Address are reserved"):
        pieces.put("a", pl.DataFrame({"Address": [1]}))
    with pytest.raises(BadData, match="No samples were kept"):
        pieces.merge(tmp_path / "merged.parquet")


def test_a_damaged_piece_names_the_folder_to_remove(pieces, tmp_path) -> None:
    pieces.put("a", pl.DataFrame({"n": [0]}))
    [path] = pieces.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Corrupt, match=r"is damaged.* Remove .*run\.partial' and repeat"):
        pieces.done()


def test_predictions_have_the_common_columns_after_the_coordinates() -> None:
    frame = prediction_frame(
        {"model": "m", "repeat": 3},
        part="test", rows=[2, 0], digests=["d0", "d1", "d2"],
        truth=["yes", "no"], answer=["no", "no"], score=[0.75, float("nan")],
    )  # fmt: skip
    assert frame.columns == [
        "model", "repeat", "part", "row", "text_digest", "truth", "answer", "score",
    ]  # fmt: skip
    assert frame.rows() == [
        ("m", 3, "test", 2, "d2", "yes", "no", 0.75),
        ("m", 3, "test", 0, "d0", "no", "no", None),
    ]


def test_splits_name_rows_repeats_and_positions() -> None:
    marked = split_frame("docs", "held out", [1, 1], ["d0", "d1"], positions=[4, 7])
    repeated = split_frame("sst2", "test", [0], ["e0"], repeat=2)
    assert pl.concat([marked, repeated]).rows() == [
        ("docs", "held out", None, 1, 4, "d1"),
        ("docs", "held out", None, 1, 7, "d1"),
        ("sst2", "test", 2, 0, None, "e0"),
    ]


def test_a_digest_is_that_of_the_text_or_of_both_texts_of_a_pair() -> None:
    single = TextSet("s", ("one", "two"))
    assert text_digests(single) == [digest_text("one")[:16], digest_text("two")[:16]]
    pairs = [TextSet("p", ("a",), pairs=(b,)) for b in ("b", "c")]
    assert text_digests(pairs[0]) != text_digests(pairs[1])
