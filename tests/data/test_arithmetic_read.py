"""Arithmetic problems in files."""

import pytest

from cutaway.core.errors import BadData
from cutaway.data.load import load_text_set


def test_lines_and_columns_are_read_as_the_same_problems(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("15 + 68 = 83\n9063-5391=3672\n6 × 7 = 42\n8 ÷ 2 = 4\n")
    columns = {"a": [15, 9063, 6, 8], "op": ["+", "-", "*", "/"], "b": [68, 5391, 7, 2]}
    lines, table = (
        load_text_set(tmp_path / "a.txt"),
        load_text_set({**columns, "result": [83, 3672, 42, 4]}),
    )
    assert lines.texts == table.texts == ("15 + 68 =", "9063 - 5391 =", "6 x 7 =", "8 / 2 =")
    assert lines.answers == ("83", "3672", "42", "4")
    assert lines.meta["carries"].tolist() == [1, 2, 1, 0]


def test_questions_in_two_parts_are_noted() -> None:
    rows = {"a": [1, 1, 2], "op": ["+"] * 3, "b": [1, 1, 1], "result": [2, 2, 3]}
    loaded = load_text_set({**rows, "split": ["train", "test", "test"]})
    assert loaded.notes == ("1 questions of test are also in train",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "+", 1, 3), r"1 results are wrong: row 2 .* 1 \+ 1 is 2"),
        ((1, "/", 0, 1), "divisions by zero"),
        ((7, "/", 2, 3), "with a remainder"),
        ((1, "^", 1, 1), "is not a problem"),
        ((1, "+", "x", 1), "is not a problem"),
        ((10**18, "+", 0, 10**18), "can't be used"),
    ],
)
def test_a_wrong_problem_is_refused_with_its_row(row, message: str) -> None:
    rows = [(1, "+", 2, 3), row]
    with pytest.raises(BadData, match=message):
        load_text_set({k: [r[i] for r in rows] for i, k in enumerate(("a", "op", "b", "result"))})


def test_text_with_some_sums_is_still_text() -> None:
    assert load_text_set(["1 + 1 = 2", "hello"]).task == "text"
