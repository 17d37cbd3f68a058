"""Arithmetic questions and answers: what is asked, generated and read."""

import numpy as np
import pytest

from cutaway.data.load import load_text_set
from cutaway.methods.inject.arithmetic import (
    answer_examples,
    answer_ids,
    generate_answers,
    make_answer_format,
    parse_number,
    parse_numbers,
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
    np.testing.assert_array_equal(parse_numbers(said, texts), texts.meta["result"])


def test_the_length_of_an_answer_is_not_given_away(toys) -> None:
    lm = open_model(toys["masked"], check=False)
    texts = load_text_set("gen:arithmetic?n=30,digits=1-3")
    spelling = make_answer_format(lm, [texts])
    rows = answer_examples(lm, texts, spelling).rows
    masks = {row.count(lm.tokenizer.mask_token_id) for row in rows}
    assert masks == {spelling.masks}
    assert len({len(answer_ids(lm, str(a))) for a in texts.meta["answers"]}) > 1


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
    assert exact_matches(right, parse_numbers([str(n) for n in right.tolist()], texts)).all()
    for step in (-1, 1):
        said = [str(n + step) for n in right.tolist()]
        assert not exact_matches(right, parse_numbers(said, texts)).any()


@pytest.mark.parametrize("text", [None, "", "the", "4.5", "12a", "1 + 2 = 3"])
def test_what_is_no_number_is_counted_as_none(text) -> None:
    assert np.isnan(parse_number(text, "plain"))
