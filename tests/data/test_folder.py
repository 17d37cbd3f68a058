import pytest

from cutaway.core.errors import BadData
from cutaway.data.folder import read_folder
from cutaway.data.load import load_text_set
from cutaway.data.part_names import PART_SPELLINGS, part_from_name

HEAD = "text\tlabel\n"


def fill(folder, **files: str):
    for name, rows in files.items():
        (folder / name.replace("__", ".")).write_text(HEAD + rows)
    return folder


def test_train_dev_and_test_files_become_parts(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\nb\t1\n", dev__tsv="c\t1\n", test__tsv="d\t0\n")
    loaded = load_text_set(tmp_path)
    assert loaded.parts.tolist() == ["train", "train", "dev", "test"]
    assert loaded.texts == ("a", "b", "c", "d")
    assert loaded.name == tmp_path.name


@pytest.mark.parametrize("name", [n for part in PART_SPELLINGS.values() for n in part])
def test_every_spelling_of_a_part_is_known(name: str, tmp_path) -> None:
    fill(tmp_path, **{f"{name}__tsv": "a\t0\n"})
    assert set(load_text_set(tmp_path).parts.tolist()) == {part_from_name(name)}


def test_the_beginning_of_a_name_is_enough(tmp_path) -> None:
    fill(tmp_path, train_10k__tsv="a\t0\n", test__tsv="b\t1\n")
    assert load_text_set(tmp_path).parts.tolist() == ["train", "test"]


def test_parts_may_have_different_formats(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n")
    (tmp_path / "test.jsonl").write_text('{"text": "b", "label": 1}\n')
    assert load_text_set(tmp_path).labels.tolist() == [0, 1]


def test_a_single_file_has_no_parts(tmp_path) -> None:
    assert load_text_set(fill(tmp_path, all__tsv="a\t0\nb\t1\n")).parts is None


def test_columns_that_one_file_lacks_are_left_out_and_noted(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\tdomain\nb\t1\tin\n")
    assert any("domain" in note for note in load_text_set(tmp_path).notes)


def test_a_bad_row_is_named_with_its_file(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n", test__tsv="b\t1\n\t1\n")
    with pytest.raises(BadData, match=r"row 2 of test\.tsv"):
        load_text_set(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no file with a known ending"),
        ({"one__tsv": "a\t0\n", "two__tsv": "b\t1\n"}, "holds one.tsv, two.tsv"),
        ({"train__tsv": "a\t0\n", "training__tsv": "b\t1\n"}, "several files for the part 'train'"),
        ({"train__tsv": "a\t0\n", "test__tsv": ""}, "test.tsv has no rows"),
    ],
)
def test_a_folder_that_is_unclear_is_refused(files, message: str, tmp_path) -> None:
    with pytest.raises(BadData, match=message):
        load_text_set(fill(tmp_path, **files))


def test_files_that_share_no_column_are_refused(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n")
    (tmp_path / "test.tsv").write_text("other\nb\n")
    with pytest.raises(BadData, match="share no column"):
        load_text_set(tmp_path)


def test_a_part_can_be_taken_from_another_file(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n", dev__tsv="b\t1\n", test__tsv="hidden\t\n")
    table, parts = read_folder(tmp_path, {"train": "train", "test": "dev"})
    assert (table.columns["text"], parts.tolist()) == (["a", "b"], ["train", "test"])
    assert "test.tsv is not part of this task" in table.notes[0]


def test_a_wanted_part_without_its_file_keeps_its_own(tmp_path) -> None:
    fill(tmp_path, train__tsv="a\t0\n", test__tsv="b\t1\n")
    _, parts = read_folder(tmp_path, {"train": "train", "test": "dev"})
    assert parts.tolist() == ["train", "test"]
