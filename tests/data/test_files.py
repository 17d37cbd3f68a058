import json

import polars
import pyarrow
import pyarrow.parquet
import pytest

from cutaway.core.errors import BadData, Missing
from cutaway.data.files import READERS, read_table, read_text

ROWS = [{"text": "good film 🎬", "label": 1}, {"text": "bad film", "label": 0}]


def put(folder, name: str, content: str | bytes):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def make(folder, suffix: str):
    path = folder / f"set{suffix}"
    if suffix == ".parquet":
        polars.DataFrame(ROWS).write_parquet(path)
        return path
    lines = {
        ".tsv": "text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS),
        ".csv": "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in ROWS),
        ".jsonl": "".join(json.dumps(r) + "\n" for r in ROWS),
        ".json": json.dumps(ROWS),
        ".txt": "".join(f"{r['text']}\n\n" for r in ROWS),
    }
    return put(folder, path.name, lines[suffix])


@pytest.mark.parametrize("suffix", READERS)
def test_every_kind_of_file_gives_the_same_texts(suffix: str, tmp_path) -> None:
    table = read_table(make(tmp_path, suffix))
    assert table.columns["text"] == ["good film 🎬", "bad film"]


@pytest.mark.parametrize("suffix", READERS)
def test_a_mark_at_the_start_of_the_file_is_no_part_of_it(suffix: str, tmp_path) -> None:
    path = make(tmp_path, suffix)
    if suffix != ".parquet":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_table(path).columns["text"][0] == "good film 🎬"


def test_broken_utf8_is_named_by_byte_and_line(tmp_path) -> None:
    path = put(tmp_path, "a.tsv", b"text\tlabel\nfine\t1\ncaf\xe9\t0\n")
    with pytest.raises(BadData, match=r"a\.tsv is not valid UTF-8 at byte 21 \(line 3\).*iconv"):
        read_text(path)


def test_mojibake_stays_as_it_is(tmp_path) -> None:
    assert read_text(put(tmp_path, "a.txt", "crÃ¨me")) == "crÃ¨me"


@pytest.mark.parametrize("content", [b"text\na\0b\n", "text\nab\n".encode("utf-16")])
def test_binary_text_is_refused(content: bytes, tmp_path) -> None:
    with pytest.raises(BadData, match=r"NUL|UTF-8"):
        read_table(put(tmp_path, "a.tsv", content))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"data": [{"text": "cut', "not valid JSON at line 1"),
        ("a.json", '"just a string"', "not rows"),
        ("a.json", "[" * 100_000, "JSON that can't be read"),
        ("a.json", '[{"text": "a", "label": ' + "9" * 5000 + "}]", "JSON that can't be read"),
        ("a.jsonl", '{"text": "a"}\n[1, 2]\n', "line 2: .* is not an object"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2: not valid JSON"),
        ("a.parquet", "no parquet at all", "can't be read as parquet"),
        ("a.xlsx", "x", r"ends in '\.xlsx'. Known endings"),
    ],
)
def test_a_broken_file_says_where(name: str, content: str, message: str, tmp_path) -> None:
    with pytest.raises(BadData, match=message):
        read_table(put(tmp_path, name, content))


def test_a_file_that_is_not_there_is_missing(tmp_path) -> None:
    with pytest.raises(Missing, match="No file at"):
        read_table(tmp_path / "gone.tsv")


def test_lines_of_a_txt_are_texts_and_blank_lines_only_separate(tmp_path) -> None:
    table = read_table(put(tmp_path, "a.txt", "one\r\n\r\n  two  \r\n"))
    assert table.columns == {"text": ["one", "two"]}


def test_two_columns_of_one_name_are_refused(tmp_path) -> None:
    columns = [pyarrow.array(["a", "b"]), pyarrow.array([0, 1]), pyarrow.array([1, 0])]
    table = pyarrow.Table.from_arrays(columns, names=["text", "label", "label"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BadData, match="has 2 columns 'label'"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".csv", ".jsonl"])
def test_a_line_without_end_is_named_before_the_file_is_read(suffix, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.data.files.MAX_LINE_BYTES", 2**20 + 5)
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"one\ntwo\n" + b"x" * (2**20 + 6) + b"\nfour\n")
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda self: pytest.fail("read as a whole"))
    with pytest.raises(BadData, match=r"line 3 is longer than 1,048,581 bytes"):
        read_table(path)


def test_long_files_of_short_lines_are_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.data.files.MAX_LINE_BYTES", 100)
    path = tmp_path / "data.txt"
    path.write_text("\n".join(["x" * 100] * 30_000))
    assert len(read_table(path)) == 30_000
