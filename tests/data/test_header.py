"""Headers are recognised by the rows below them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData
from cutaway.data.delimited import read_csv
from cutaway.data.header import first_line_is_header
from cutaway.data.load import load_task, load_text_set
from cutaway.data.table import Table

WORD = st.text("abcdefgh", min_size=2, max_size=7)
SENTENCE = st.lists(WORD, min_size=4, max_size=9).map(" ".join)
NAMES = st.lists(
    st.text("qrstuvwxyz_", min_size=3, max_size=10).filter(lambda name: name.strip("_")),
    min_size=2, max_size=2, unique=True,
)  # fmt: skip
LABELS = st.sampled_from([("yes", "no"), ("0", "1"), ("-1.5", "2"), ("spam", "not spam", "other")])


def is_header(*lines: str) -> bool:
    return first_line_is_header(read_csv("x.csv", "\n".join(lines) + "\n"))


@given(NAMES, LABELS, st.lists(SENTENCE, min_size=2, max_size=8), st.booleans())
def test_a_line_of_names_is_a_header_and_a_line_of_data_is_not(names, labels, texts, first) -> None:
    # Every label occurs twice, so that the first line's label occurs again below it.
    rows = [(text, labels[i % len(labels)]) for i, text in enumerate(texts * len(labels))]
    lines = [",".join(row if first else row[::-1]) for row in rows]
    assert is_header(",".join(names), *lines)
    assert not is_header(*lines)


@given(st.lists(SENTENCE, min_size=2, max_size=8, unique=True))
def test_one_column_of_sentences_has_a_header_only_if_its_first_line_is_a_name(texts) -> None:
    assert is_header("remark", *texts)
    assert is_header("text", *texts)
    assert not is_header(*texts)


@given(st.integers(0, 1), LABELS, st.lists(SENTENCE, min_size=2, max_size=8))
def test_column_numbers_above_text_are_a_header(start, labels, texts) -> None:
    lines = [f"{text},{labels[i % 2]}" for i, text in enumerate(texts)]
    assert is_header(f"{start},{start + 1}", *lines)


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=6))
def test_numbers_above_numbers_are_data(numbers) -> None:
    assert not is_header(*(f"{n},{n}.5" for n in numbers))
    assert is_header("count,share", *(f"{n},{n}.5" for n in numbers))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["text,label", "label,text", "text,label"], True),
        (
            ["Final verdict,Review text", "good,a film worth seeing again", "bad,it never ends"],
            True,
        ),
        (["good,a fine film", "bad,a bad film"], False),
        (["1,good film", "0,bad film"], False),
        (["apple,pear", "plum,fig"], True),
        (["text"], True),
        (["0,worse film"], False),
        (["0,1"], True),
    ],
)
def test_headers_of_small_files(lines, expected: bool) -> None:
    assert is_header(*lines) is expected


def test_files_that_name_their_columns_always_have_a_header() -> None:
    assert first_line_is_header(Table("x.jsonl", {"1": ["0", "1"], "a fine film": ["b", "c"]}))


def test_an_unknown_label_column_is_named_as_the_cause(tmp_path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("sentence,class\na fine film,positive\na bad one,negative\n")
    with pytest.raises(BadData, match=r"no label column of the task 'sst2'.*'class'.*--label-col"):
        load_task("sst2", data=path)
    loaded = load_task("sst2", data=path, label_column="class")
    assert (loaded.texts, loaded.labels.tolist()) == (("a fine film", "a bad one"), [1, 0])
    with pytest.raises(BadData, match=r"no column 'klass'.*Did you mean 'class'"):
        load_task("sst2", data=path, label_column="klass")


def test_named_columns_work_for_every_role_of_a_task(tmp_path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,c\none,two,1\nthree,four,0\n")
    named = {"text_column": "a", "pair_column": "b", "label_column": "c"}
    loaded = load_task("rte", data=path, **named)
    assert (loaded.texts, loaded.pairs) == (("one", "three"), ("two", "four"))
    with pytest.raises(BadData, match="no text and no pair column of the task 'rte'"):
        load_task("rte", data=path, label_column="c")


def test_a_header_of_numbers_is_named_in_one_message(tmp_path) -> None:
    path = tmp_path / "frame.csv"
    path.write_text("0,1\na fine film,1\na bad one,0\n")
    with pytest.raises(BadData, match=r"no text and no label column.*Its columns: '0', '1'"):
        load_task("sst2", data=path)
    with pytest.raises(BadData, match=r"--text-column\)\. Its columns: '0', '1'"):
        load_text_set(path)
    loaded = load_text_set(path, text_column="0", label_column="1")
    assert loaded.labels.tolist() == [1, 0]


def test_a_file_without_a_header_is_told_to_have_none(tmp_path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("1,a good film,x y\n0,a bad film,x z\n")
    for read in (load_text_set, lambda data: load_task("sst2", data=data)):
        with pytest.raises(BadData, match=r"first line of bare.csv \('1', 'a good film'.*header"):
            read(path)


def test_json_columns_are_never_read_as_rows(tmp_path) -> None:
    path = tmp_path / "two.jsonl"
    path.write_text('{"kind": "0", "words": "it is a long film"}\n' * 2)
    with pytest.raises(BadData, match="Its columns: 'kind', 'words'"):
        load_task("sst2", data=path)
