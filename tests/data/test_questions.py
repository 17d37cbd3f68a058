"""Questions and answers from tables."""

import json
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec
from cutaway.data.load import load_if_questions, load_questions, load_text_set
from cutaway.data.questions import QuestionOptions, has_questions, parse_decimal
from cutaway.data.table import Table

CAPITALS = {
    "question": ["Capital of France?", "Capital of Peru?", "Capital of Chad?"],
    "answer": ["Paris", "Lima", "N'Djamena"],
}


def read(columns, **options):
    return load_questions(columns, QuestionOptions(**options))


@pytest.mark.parametrize(
    ("question", "answer"),
    [("prompt", "answer"), ("context", "completion"), ("Question", "Answer"), ("q", "a"),
     ("prompt", "response"), ("instruction", "output"), ("input", "target"),
     ("problem", "solution")],
)  # fmt: skip
def test_usual_pairs_of_names_are_found(question: str, answer: str) -> None:
    columns = {question: CAPITALS["question"], answer: CAPITALS["answer"], "id": ["x", "y", "z"]}
    texts = read(columns)
    assert (texts.texts, texts.answers) == tuple(map(tuple, CAPITALS.values()))
    assert f"question from {question!r}, answer from {answer!r}" in texts.notes
    assert has_questions(Table("t", columns))


def test_every_kind_of_file_gives_the_same_questions(tmp_path) -> None:
    rows = [{"context": "Q: What is 98 plus 45?\n\nA:", "completion": " 143"},
            {"context": "Q: What is 1 plus 2?\n\nA:", "completion": " 3"}]  # fmt: skip
    frame = pl.DataFrame(rows)
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_csv(tmp_path / "x.csv")
    made = [load_questions(tmp_path / f"x.{end}") for end in ("jsonl", "parquet", "csv")]
    made += [load_questions(frame), load_questions(rows)]
    assert {texts.digest for texts in made} == {made[0].digest}
    assert made[0].texts[0] == "Q: What is 98 plus 45?\n\nA:"
    assert made[0].answers == ("143", "3")
    assert made[0].meta["result"].tolist() == [143, 3]


def test_a_folder_keeps_its_parts(tmp_path) -> None:
    for part, answer in (("train", "a"), ("test", "b")):
        (tmp_path / f"{part}.jsonl").write_text(json.dumps({"prompt": part, "answer": answer}))
    texts = load_questions(tmp_path)
    assert (texts.parts.tolist(), texts.answers) == (["train", "test"], ("a", "b"))


def test_a_template_is_filled_with_columns() -> None:
    columns = {"country": ["France", "Peru"], "what": ["capital", ""], "answer": ["Paris", "Lima"]}
    texts = read(columns, template=r"Q: {what} of {country}?\nA: ")
    assert texts.texts == ("Q: capital of France?\nA:", "Q:  of Peru?\nA:")
    braces = read({**columns, "country": ["{what}", "b"]}, template="{country} {what}:")
    assert braces.texts[0] == "{what} capital:"


def test_labelled_sets_are_questions_with_a_template() -> None:
    texts = load_questions(
        "gen:tense?n=12", QuestionOptions(template="{text} Tense:", answer_column="label")
    )
    labelled = load_text_set("gen:tense?n=12")
    assert set(texts.answers) == {"past", "present"}
    assert texts.texts[0] == f"{labelled.texts[0]} Tense:"
    assert texts.parts.tolist() == labelled.parts.tolist()


def test_arithmetic_is_one_source_among_others() -> None:
    lines = {"text": ["1 + 2 = 3", "5 - 4 = 1"]}
    assert read(lines).answers == ("3", "1")
    assert (
        load_questions("gen:arithmetic?n=5").answers == load_text_set("gen:arithmetic?n=5").answers
    )
    asked = read({"a": [1], "op": ["+"], "b": [2], "result": [3]}, template="{a} and {b} is",
                 answer_column="result")  # fmt: skip
    assert (asked.texts, asked.answers) == (("1 and 2 is",), ("3",))


def test_columns_with_few_values_group_the_questions() -> None:
    columns = {"prompt": list("abcdef"), "answer": list("uvwxyz"), "kind": ["x", "y"] * 3,
               "id": range(6), "one": ["same"] * 6, "split": ["train", "test"] * 3}  # fmt: skip
    texts = read({name: list(values) for name, values in columns.items()})
    assert list(texts.meta["groups"]) == ["kind"]
    assert texts.take([1, 2]).meta[texts.meta["groups"]["kind"]].tolist() == ["y", "x"]


def test_the_digest_holds_the_answers() -> None:
    other = {**CAPITALS, "answer": ["Paris", "Lima", "Abéché"]}
    assert read(CAPITALS).digest != read(other).digest
    plain, scratch = (
        load_text_set(f"gen:arithmetic?n=5,format={form}") for form in ("plain", "scratch")
    )
    assert plain.texts == scratch.texts
    assert plain.digest != scratch.digest


@given(st.integers(-(10**15), 10**15), st.integers(0, 999))
def test_numbers_are_read_exactly(whole: int, thousandths: int) -> None:
    assert parse_decimal(f" {whole} ") == whole
    assert parse_decimal(f"{whole:,}") == whole
    sign = "-" if whole < 0 else ""
    text = f"{sign}{abs(whole)}.{thousandths:03}"
    assert parse_decimal(text) == Decimal(text)


@pytest.mark.parametrize("text", ["", "1,00", "12a", "1.", ".5", "nan", "1 2", "$3"])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert parse_decimal(text) is None


def test_one_answer_that_is_no_number_makes_all_of_them_texts() -> None:
    assert "result" not in read({"prompt": ["a", "b"], "answer": ["1", "two"]}).meta
    assert read({"prompt": ["a", "b"], "answer": [1.0, 2.5]}).answers == ("1", "2.5")


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"prompt": ["a", "b"], "answer": ["", None]}, {}, BadData,
         "2 of 2 answers in 'answer' are empty: row 1"),
        ({"prompt": ["a", " "], "answer": ["x", "y"]}, {}, BadData,
         "1 of 2 questions in 'prompt' are empty: row 2"),
        ({"prompt": ["a"], "answer": [["x"]]}, {}, BadData, "'answer' holds .*expected one text"),
        ({"prompt": ["a"], "reply": ["x"]}, {}, BadData, "no answer column.*--answer-column"),
        ({"text": ["a"], "answer": ["x"]}, {}, BadData, "no question column.*--prompt-column"),
        ({"prompt": ["a"], "input": ["b"], "answer": ["x"]}, {}, BadData,
         "'prompt' or 'input' could be the question"),
        (CAPITALS, {"answer_column": "anser"}, BadData, "no column 'anser'. Did you mean 'answer'"),
        (CAPITALS, {"template": "Q:"}, BadSpec, "has no field.*Its columns: 'question', 'answer'"),
        (CAPITALS, {"template": "Q: {questio}"}, BadData, "{questio}.*Did you mean 'question'"),
        (CAPITALS, {"template": "Q: {answer}"}, BadSpec, "give the answer away"),
        (CAPITALS, {"template": "{question}", "prompt_column": "question"}, BadSpec, "one of them"),
        ({"0": ["Who?"], "1": ["I"]}, {}, BadData, "no answer column.*Its columns: '0', '1'"),
        ({"prompt": [], "answer": []}, {}, BadData, "has no rows"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_and_no_other_flag_is_advised(
    columns, options, error, message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        read(columns, **options)
    assert "--text-column" not in str(caught.value)


def test_sets_with_answers_take_no_columns() -> None:
    with pytest.raises(BadSpec, match=r"template is '{a}', but .* defines its own columns"):
        load_questions("gen:arithmetic?n=5", QuestionOptions(template="{a}"))


def test_only_tables_with_usual_names_are_questions_by_themselves(tmp_path) -> None:
    assert load_if_questions(CAPITALS).answers == tuple(CAPITALS["answer"])
    for other in ("docs", "gen:tense", "sst2", load_text_set("gen:tense?n=8"), {"text": ["a"]}):
        assert load_if_questions(other) is None
