"""Questions and answers: what is asked, generated and read."""

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.data.load import load_questions, load_text_set
from cutaway.methods.inject.answers import (
    answer_examples,
    answer_tokens,
    generate_answers,
    make_answer_format,
    parse_number,
    read_answers,
    right_answers,
)
from cutaway.methods.inject.maths.score import exact_matches
from cutaway.models.load import open_model


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_right_answers_are_read_as_the_right_numbers(kind, toys, monkeypatch) -> None:
    lm = open_model(toys[kind], check=False)
    texts = load_text_set("gen:arithmetic?n=30,digits=1-2")
    spelling = make_answer_format(lm, [texts])
    examples = answer_examples(lm, texts, spelling)
    said = []
    for target in examples.targets:
        tokens = target[: target.index(spelling.end)] if spelling.end in target else target
        said.append(lm.tokenizer.decode(tokens))
    np.testing.assert_array_equal(read_answers(said, texts), texts.meta["result"])


def test_the_length_of_an_answer_is_not_given_away(toys) -> None:
    lm = open_model(toys["masked"], check=False)
    texts = load_text_set("gen:arithmetic?n=30,digits=1-3")
    spelling = make_answer_format(lm, [texts])
    rows = answer_examples(lm, texts, spelling).rows
    masks = {row.count(lm.tokenizer.mask_token_id) for row in rows}
    assert masks == {spelling.masks}
    assert len({len(ids) for ids in answer_tokens(lm, texts)}) > 1


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_what_is_said_does_not_depend_on_company(kind, toys) -> None:
    lm = open_model(toys[kind], check=False)
    texts = load_text_set("gen:arithmetic?n=12,digits=1-2")
    spelling = make_answer_format(lm, [texts])
    alone = [generate_answers(lm, texts.take([i]), spelling)[0] for i in range(len(texts))]
    assert generate_answers(lm, texts, spelling) == alone


@pytest.mark.parametrize(
    ("text", "form", "number"),
    [
        (" 46", "plain", 46),
        ("4 6", "digit-spaced", 46),
        ("-7", "plain", -7),
        ("1 + 2 + 0 = 3; 3", "scratch", 3),
    ],
)
def test_numbers_are_read(text, form, number) -> None:
    assert parse_number(text, form) == number


def test_an_answer_of_18_digits_that_is_off_by_one_is_wrong() -> None:
    texts = load_text_set("gen:arithmetic?n=12,ops=x,digits=9,dev=1,test=1")
    right = texts.meta["result"]
    assert exact_matches(right, read_answers([str(n) for n in right.tolist()], texts)).all()
    for step in (-1, 1):
        said = [str(n + step) for n in right.tolist()]
        assert not exact_matches(right, read_answers(said, texts)).any()


@pytest.mark.parametrize("text", [None, "", "the", "4.5", "12a", "1 + 2 = 3"])
def test_what_is_no_number_is_counted_as_none(text) -> None:
    assert np.isnan(parse_number(text, "plain"))


@pytest.mark.parametrize("kind", ["causal", "masked"])
@pytest.mark.parametrize("end", ["?", ":", "=", "\n", " \n\n", "? "])
def test_any_question_and_its_own_answer_match(kind, end, toys) -> None:
    lm = open_model(toys[kind], check=False)
    answers = ["red birds", "12", "Birds, 4 of them.", "a"]
    texts = load_questions({"prompt": [f"q {i}{end}" for i in range(4)], "answer": answers})
    form = make_answer_format(lm, [texts])
    examples, right = answer_examples(lm, texts, form), right_answers(lm, texts)
    said = []
    for row, positions, target in zip(
        examples.rows, examples.positions, examples.targets, strict=True
    ):
        tokens = target[: target.index(form.end)] if form.end in target else target
        said.append(lm.tokenizer.decode(tokens))
        if kind == "causal":
            assert row[positions[0] + 1 :] == tokens
    assert exact_matches(right, read_answers(said, texts)).all()
    assert not exact_matches(right, read_answers([None, "x", "12 a", ""], texts)).any()


def test_a_question_that_is_too_long_is_named(toys) -> None:
    lm = open_model(toys["causal"], check=False)
    texts = load_questions({"prompt": ["short", "long " * lm.context], "answer": ["a", "a"]})
    with pytest.raises(BadData, match=r"The question 'long long .*takes"):
        answer_examples(lm, texts)


def test_numbers_are_read_with_their_fraction() -> None:
    texts = load_questions({"prompt": ["a", "b"], "answer": ["1,000", "2.50"]})
    assert exact_matches(texts.meta["result"], read_answers(["1000", " 2.5"], texts)).all()
    assert np.isnan(read_answers(["two", None], texts).astype(float)).all()
