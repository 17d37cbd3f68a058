import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.data.arithmetic import NUMBER_FORMATS, OPERATORS, SCRATCH_STEPS, ArithmeticProblem
from cutaway.data.generate import generate
from cutaway.data.load import load_text_set

NUMBERS = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("a", "op", "b", "carries"),
    [
        (12, "+", 34, 0),
        (18, "+", 33, 1),
        (49, "+", 84, 2),
        (999, "+", 1, 3),
        (88, "-", 4, 0),
        (52, "-", 37, 1),
        (1000, "-", 1, 3),
        (21, "x", 4, 0),
        (26, "x", 4, 2),
        (104, "/", 4, 2),
    ],
)
def test_carries_are_counted_as_by_hand(a: int, op: str, b: int, carries: int) -> None:
    assert ArithmeticProblem(a, op, b).carries == carries


@given(NUMBERS, NUMBERS)
def test_a_sum_has_as_many_carries_as_its_digits_lose(a: int, b: int) -> None:
    digits = [sum(map(int, str(number))) for number in (a, b, a + b)]
    assert ArithmeticProblem(a, "+", b).carries == (digits[0] + digits[1] - digits[2]) // 9


@given(NUMBERS, NUMBERS)
def test_taking_away_borrows_as_often_as_putting_back_carries(a: int, b: int) -> None:
    more, less = max(a, b), min(a, b)
    assert (
        ArithmeticProblem(more, "-", less).carries
        == ArithmeticProblem(more - less, "+", less).carries
    )


@given(NUMBERS, st.sampled_from(sorted(SCRATCH_STEPS)), st.integers(1, 10**6))
def test_every_step_of_the_scratch_is_true(a: int, op: str, b: int) -> None:
    problem = {
        "-": ArithmeticProblem(max(a, b), "-", min(a, b)),
        "/": ArithmeticProblem(a * b, "/", b),
    }.get(op, ArithmeticProblem(a, op, b))
    for step in SCRATCH_STEPS[op](problem):
        left, right = step.split(" = ")
        assert _worth(left) == int(right), step


def _worth(said: str) -> int:
    """The value of `a + b - c` or `a - b x c`, products first."""
    total, sign = 0, 1
    for term in said.replace(" - ", " + -").split(" + "):
        factors = [int(f) for f in term.lstrip("-").split(" x ")]
        sign = -1 if term.startswith("-") else 1
        total += sign * int(np.prod(factors, dtype=object))
    return total


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("plain", ("49 + 84 =", "133")),
        ("digit-spaced", ("4 9 + 8 4 =", "1 3 3")),
        ("scratch", ("49 + 84 =", "9 + 4 + 0 = 13; 4 + 8 + 1 = 13; 133")),
    ],
)
def test_formats(spelling: str, expected: tuple[str, str]) -> None:
    assert NUMBER_FORMATS[spelling](ArithmeticProblem(49, "+", 84)) == expected


@pytest.mark.parametrize("ops", ["+", "-", "x", "/", "+-x/"])
@pytest.mark.parametrize("spelling", NUMBER_FORMATS)
def test_generated_problems_are_right_and_no_question_is_in_two_parts(ops, spelling) -> None:
    made = generate(f"gen:arithmetic?n=200,ops={ops},digits=1-3,format={spelling}")
    rows = zip(*(made.meta[k].tolist() for k in ("a", "op", "b", "result")), strict=True)
    seen: dict[tuple, str] = {}
    for (a, op, b, result), part in zip(rows, made.parts, strict=True):
        assert OPERATORS[op](a, b) == result >= 0
        assert op != "/" or (b > 0 and b * result == a)
        assert seen.setdefault(ArithmeticProblem(a, op, b).key, part) == part
    assert set(made.meta["op"].tolist()) == set(ops)
    assert made.labels.tolist() == made.meta["result"].tolist()


def test_digits_follow_their_weights_and_test_can_lie_beyond() -> None:
    made = generate("gen:arithmetic?n=900,ops=+,digits=1-3,weights=0:1:0,test_digits=4-5")
    train = made.meta["digits"][made.parts == "train"]
    test = made.meta["digits"][made.parts == "test"]
    assert set(train.tolist()) == {2}
    assert set(test.tolist()) <= {4, 5}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("ops=%", UnknownName, "Unknown operator '%'. Known"),
        ("digits=0", BadSpec, "digits is '0'"),
        ("digits=3-2", BadSpec, "digits is '3-2'"),
        ("digits=12", BadSpec, "within 1-9"),
        ("weights=1:2:3", BadSpec, "expected 2 numbers"),
        ("weights=-1:2", BadSpec, "expected 2 numbers"),
        ("weights=0:0", BadSpec, "expected 2 numbers"),
        ("format=roman", UnknownName, "Unknown number format"),
        ("digits=1,n=500", BadSpec, "not enough different problems"),
        ("test_digits=x", BadSpec, "digits is 'x'"),
    ],
)
def test_a_wrong_wish_is_refused(options: str, error, message: str) -> None:
    with pytest.raises(error, match=message):
        generate(f"gen:arithmetic?{options}")


def test_lines_and_columns_are_read_as_the_same_problems(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("15 + 68 = 83\n9063-5391=3672\n6 × 7 = 42\n8 ÷ 2 = 4\n")
    columns = {"a": [15, 9063, 6, 8], "op": ["+", "-", "*", "/"], "b": [68, 5391, 7, 2]}
    lines, table = (
        load_text_set(tmp_path / "a.txt"),
        load_text_set({**columns, "result": [83, 3672, 42, 4]}),
    )
    assert lines.texts == table.texts == ("15 + 68 =", "9063 - 5391 =", "6 x 7 =", "8 / 2 =")
    assert lines.meta["answers"].tolist() == ["83", "3672", "42", "4"]
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


def test_a_limit_keeps_answers_with_their_questions() -> None:
    some = load_text_set("gen:arithmetic?n=100", limit=20)
    for text, answer in zip(some.texts, some.meta["answers"], strict=True):
        a, op, b, _ = text.split()
        assert OPERATORS[op](int(a), int(b)) == int(answer)
