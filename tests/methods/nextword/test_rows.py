"""Which tokens of a long text nextword reads, and which class of a set a task's word stands for."""

import numpy as np
import pytest

from cutaway.core.errors import Mismatch
from cutaway.core.textset import TextSet
from cutaway.extract.token_rows import build_token_rows
from cutaway.methods.nextword.features import prompt_texts
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks

PROMPT = " It rained all day"
LONG = " ".join(f"town {i}" for i in range(60))
MOST = 24


def asked(task: str, data, **options) -> NextwordTask:
    spec = NextwordSpec(model=["m"], task=[task], data=["d"], **options)
    return nextword_tasks(spec, {"d": data})[0]


def rows(classes: tuple[str, ...], n: int = 20) -> TextSet:
    """Row i is of the class number i mod classes; its text says which."""
    labels = np.arange(n) % len(classes)
    kind = "binary" if len(classes) == 2 else "multiclass"
    return TextSet("rows", tuple(classes[i] for i in labels), labels, kind, classes)


def fed(lm, texts: TextSet, prompt: str, **options) -> list[list[int]]:
    spec = NextwordSpec(model=["m"], data=["d"], max_tokens=MOST, prompt_text=PROMPT, **options)
    read = prompt_texts(spec, lm, nextword_tasks(spec, {"d": texts})[0], prompt, texts)
    return build_token_rows(lm, read.texts, read.request).rows


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_long_text_is_read_to_the_same_end_with_the_prompt_and_without(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    texts = TextSet("long", (LONG,) * 20, np.arange(20) % 2, "binary", ("a", "b"))
    special = set(lm.tokenizer.all_special_ids)
    plain = [i for i in fed(lm, texts, "")[0] if i not in special]
    with_prompt = [i for i in fed(lm, texts, PROMPT)[0] if i not in special]
    tail = lm.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    assert with_prompt[-len(tail) :] == tail
    kept = with_prompt[: -len(tail)]
    assert len(kept) == len(plain) - len(tail)
    assert kept == plain[len(tail) :]


@pytest.mark.parametrize("template", ["{mask}: {text}", "{text} It was {mask}."])
def test_no_template_loses_its_mask_to_a_long_text(template, tiny_lm) -> None:
    lm = tiny_lm("bert")
    texts = TextSet("long", (LONG,) * 20, np.arange(20) % 2, "binary", ("a", "b"))
    for row in fed(lm, texts, "", position="mask", template=template):
        assert len(row) == MOST
        assert row.count(lm.tokenizer.mask_token_id) == 1


def test_classes_meet_a_tasks_words_by_name_in_whatever_order_they_come() -> None:
    task = asked("sst2", rows(("negative", "positive")))
    turned = asked("sst2", rows(("Positive", "Negative")))
    assert turned.texts.classes == task.texts.classes == ("negative", "positive")
    assert turned.answers == task.answers
    for question in (task, turned):
        said = [question.texts.classes[i] for i in question.labels]
        assert said == [text.lower() for text in question.texts.texts]


@pytest.mark.parametrize(
    ("task", "classes", "first"),
    [("sst2", ("pos", "neg"), 1), ("sst2", ("0", "1"), 0), ("qnli", ("0", "1"), 1)],
)
def test_spellings_of_a_tasks_file_are_its_classes_and_numbers_mean_what_it_says(
    task, classes, first
) -> None:
    assert asked(task, rows(classes)).labels[0] == first


def test_columns_given_with_a_task_are_read_as_the_task_reads_a_file() -> None:
    data = {"text": [f"text {i}" for i in range(20)], "label": ["pos", "neg"] * 10}
    question = asked("sst2", data)
    assert question.texts.classes == ("negative", "positive")
    assert question.labels.tolist() == [1, 0] * 10


def test_other_classes_are_refused_with_both_lists_however_many_they_are() -> None:
    both = "business, cooking, science, sport, task 'ag_news' has World, Sports, Business, Sci/Tech"
    with pytest.raises(Mismatch, match=both):
        nextword_tasks(NextwordSpec(model=["m"], task=["ag_news"], data=["gen:topic?n=80"]), {})
    with pytest.raises(Mismatch, match="classes no, yes, task 'sst2' has negative, positive"):
        asked("sst2", rows(("no", "yes")))


def test_given_class_words_stand_in_the_order_of_the_sets_own_classes() -> None:
    question = asked("sst2", rows(("positive", "negative")), class_words=["good", "bad"])
    assert question.texts.classes == ("positive", "negative")
    assert question.answers == (("good", "bad"),)
