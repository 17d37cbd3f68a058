"""Generated arithmetic problems."""

import pytest

from cutaway.core.errors import BadSpec, UnknownName
from cutaway.data.arithmetic import NUMBER_FORMATS, OPERATORS, ArithmeticProblem
from cutaway.data.generate import generate
from cutaway.data.load import load_text_set


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


def test_digits_follow_their_weights_and_test_digits_can_differ() -> None:
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
def test_invalid_options_are_refused(options: str, error, message: str) -> None:
    with pytest.raises(error, match=message):
        generate(f"gen:arithmetic?{options}")


def test_a_limit_keeps_answers_with_their_questions() -> None:
    some = load_text_set("gen:arithmetic?n=100", limit=20)
    for text, answer in zip(some.texts, some.answers, strict=True):
        a, op, b, _ = text.split()
        assert OPERATORS[op](int(a), int(b)) == int(answer)
