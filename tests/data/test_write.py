import json

import numpy as np
import pytest

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data import write as writing
from cutaway.data.load import load_text_set
from cutaway.data.write import WRITERS, write_text_set

SETS = {
    "classes": lambda: load_text_set("gen:sentiment?n=12"),
    "many classes": lambda: load_text_set("gen:topic?n=12"),
    "arithmetic": lambda: load_text_set("gen:arithmetic?n=12"),
    "regression": lambda: TextSet("r", ("a", "b"), np.array([0.25, 1.5]), "regression"),
    "pairs": lambda: TextSet(
        "p", ("a", "b"), np.array([1, 0]), "binary", ("not", "is"), pairs=("c", "d")
    ),
    "text": lambda: TextSet("t", ("one", 'two "quoted"', "🎬")),
}


@pytest.mark.parametrize("suffix", [s for s in WRITERS if s != ".txt"])
@pytest.mark.parametrize("kind", SETS)
def test_what_is_written_is_read_back(kind: str, suffix: str, tmp_path) -> None:
    made = SETS[kind]()
    (path,) = write_text_set(made, tmp_path / f"set{suffix}")
    assert load_text_set(path).digest == made.digest


@pytest.mark.parametrize("kind", SETS)
def test_a_folder_holds_a_file_per_part(kind: str, tmp_path) -> None:
    made = SETS[kind]()
    written = write_text_set(made, tmp_path / "set")
    names = ["all"] if made.parts is None else ["train", "dev", "test"]
    assert [path.stem for path in written] == names
    assert load_text_set(tmp_path / "set").digest == made.digest


def test_plain_text_is_read_back_from_txt(tmp_path) -> None:
    made = SETS["text"]()
    write_text_set(made, tmp_path / "a.txt")
    assert load_text_set(tmp_path / "a.txt").texts == made.texts


def test_several_labels_are_written_by_name(tmp_path) -> None:
    marks = np.array([[1, 0], [1, 1], [0, 1]])
    made = TextSet("m", ("a", "b", "c"), marks, "multilabel", ("x", "y"))
    write_text_set(made, tmp_path / "a.jsonl")
    assert load_text_set(tmp_path / "a.jsonl").digest == made.digest
    with pytest.raises(BadData, match=r"Write \.jsonl"):
        write_text_set(made, tmp_path / "a.tsv")


def test_other_formats_of_numbers_keep_their_answers(tmp_path) -> None:
    (path,) = write_text_set(
        load_text_set("gen:arithmetic?n=5,format=scratch"), tmp_path / "a.jsonl"
    )
    row = json.loads(path.read_text().splitlines()[0])
    assert row["answer"].endswith(str(int(row["label"])))


@pytest.mark.parametrize("text", ["a\tb", "a\nb", 'x "" y"\n', '"a ""b"" c"'])
def test_texts_that_a_tsv_would_change_are_refused(text: str, tmp_path) -> None:
    made = TextSet("t", (text, "plain"))
    with pytest.raises(BadData, match=r"Write \.jsonl"):
        write_text_set(made, tmp_path / "a.tsv")
    assert list(tmp_path.iterdir()) == []
    (path,) = write_text_set(made, tmp_path / "a.jsonl")
    assert load_text_set(path).texts == made.texts


def test_labels_do_not_fit_into_txt(tmp_path) -> None:
    with pytest.raises(BadData, match=r"holds texts only"):
        write_text_set(SETS["regression"](), tmp_path / "a.txt")


def test_an_unknown_ending_is_refused(tmp_path) -> None:
    with pytest.raises(BadSpec, match=r"ends in '\.xlsx'"):
        write_text_set(SETS["text"](), tmp_path / "a.xlsx")


def test_a_place_that_cannot_be_written_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadSpec, match="can't be written"):
        write_text_set(SETS["text"](), tmp_path / "file" / "a.tsv")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(writing.NoRoom, match="No space left"):
        write_text_set(SETS["text"](), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]
